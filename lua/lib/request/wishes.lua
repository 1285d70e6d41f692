-- An asker's wishes, each of least_wanted calls at least; nil if one can never work. too_large is set if a call costs more than a limit can ever give.
local function read_wishes(next_number, terms, keys, least_wanted)
  local wishes = {}
  for index = 1, next_number() do
    local key = keys[next_number()]
    local wish = { key = key, wanted = next_number(), rank = next_number(), name = ARGV[3 + 2 * index] }
    wish.is_bounded = next_number() == 1
    wish.since_us, wish.next_since_us, wish.last_since_us = next_number(), next_number(), next_number()
    wish.place = { turn_us = next_number(), lease_order = next_number(), turn_name = ARGV[4 + 2 * index] }
    wish.costs = read_costs(next_number, terms.limits, {})
    wish.costs = wish.costs and read_costs(next_number, key and key.limits or {}, wish.costs)
    if not wish.costs or wish.wanted < least_wanted or not terms.shares[wish.rank + 1] then return nil end
    wishes.too_large = wishes.too_large or wish.costs.too_large
    wishes.capacity = wishes.capacity or wish.costs.capacity
    wishes[index] = wish
  end
  return wishes
end

-- An asker's wishes, each of least_wanted calls at least; nil if one can never work. too_large is set if a call costs more than a limit can ever give.
local function read_wishes(next_number, terms, keys, least_wanted)
  local wishes, text_at = {}, 4
  local function next_text()
    text_at = text_at + 1
    return ARGV[text_at]
  end
  for index = 1, next_number() do
    local wish = {
      name = next_text(), keys = {}, places = {}, wanted = next_number(), rank = next_number(),
      is_bounded = next_number() == 1, since_us = next_number(), next_since_us = next_number(),
      last_since_us = next_number(), costs = nil, shadow_costs = nil,
    }
    for at = 1, next_number() do
      wish.keys[at] = keys[next_number()]
      wish.places[at] = { turn_us = next_number(), lease_order = next_number(), turn_name = next_text() }
      if not wish.keys[at] then return nil end
    end
    wish.costs = read_costs(next_number, terms.limits, {})
    for _, key in ipairs(wish.keys) do
      wish.costs = wish.costs and read_costs(next_number, key.limits, wish.costs)
    end
    if not wish.costs or wish.wanted < least_wanted or not terms.shares[wish.rank + 1] then return nil end
    wishes.too_large = wishes.too_large or wish.costs.too_large
    wishes.capacity = wishes.capacity or wish.costs.capacity
    wishes[index] = wish
  end
  return wishes
end

-- What a call of each wish costs under each shadow; false if one can never work.
local function read_shadow_costs(next_number, wishes, shadows)
  if #shadows == 0 then return true end
  for _, wish in ipairs(wishes) do
    wish.shadow_costs = {}
    for index = 1, #shadows do
      wish.shadow_costs[index] = next_number() or -1
      if wish.shadow_costs[index] < 0 then return false end
    end
  end
  return true
end

-- What is left of limits, and when there is more. Twin of addStatuses and remainingOf in src/core/draw/scope.ts.

-- -1 in a reply is a time that is unknown.
local function or_minus_one(us)
  return us == math.huge and -1 or us
end

-- How much a limit would let pass at once, found by halving.
local function remaining_of(limit, now_us, drawer)
  local remaining, too_many = 0, limit.capacity + 1
  while too_many - remaining > 1 do
    local middle = math.floor((remaining + too_many) / 2)
    if RULES[limit.code].earliest(limit, now_us, middle, drawer) <= now_us then remaining = middle else too_many = middle end
  end
  return remaining
end

-- The costs of the scope's limits come after so many others.
local function add_statuses(into, scope, costs, after, now_us)
  local drawer = { asker = '', now_us = now_us, order = 0, lease = 0 }
  for index, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    into[#into + 1] = { remaining_of(limit, now_us, drawer), or_minus_one(rule.earliest(limit, now_us, limit.capacity, drawer)),
      or_minus_one(rule.earliest(limit, now_us, costs[after + index], drawer)) }
  end
end

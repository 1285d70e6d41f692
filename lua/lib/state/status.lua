-- Computes how many units limits still allow, and when they allow more.

-- Replaces an unknown time by -1.
local function or_minus_one(us)
  return us == math.huge and -1 or us
end

-- Returns the units that a limit would allow at once, found by bisection.
local function remaining_of(limit, now_us, drawer)
  local remaining, too_many = 0, limit.capacity + 1
  while too_many - remaining > 1 do
    local middle = math.floor((remaining + too_many) / 2)
    if RULES[limit.code].earliest(limit, now_us, middle, drawer) <= now_us then remaining = middle else too_many = middle end
  end
  return remaining
end

-- Adds a list of three values for each limit of a scope, and of four for a budget. `after` is the number of costs before those of the scope's limits.
local function add_statuses(into, scope, costs, after, now_us)
  local drawer = { asker = '', now_us = now_us, order = 0, lease = 0 }
  for index, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if rule.is_budget then into[#into + 1] = { rule.status(limit, now_us, costs[after + index]) }
    else into[#into + 1] = { remaining_of(limit, now_us, drawer), or_minus_one(rule.earliest(limit, now_us, limit.capacity, drawer)),
      or_minus_one(rule.earliest(limit, now_us, costs[after + index], drawer)) } end
    if rule.add_state then rule.add_state(limit, into[#into]) end
  end
end

-- Reads limits from a replica's numbers, and their state from Redis. A Lua table with more than eight fields takes
-- twice the memory, so a limit has a rare field only if it needs the field.

-- True if this request has a budget. Only then do the scripts look for budgets.
local has_budgets = false

local function copy_limits(limits)
  local copies = {}
  for index = 1, #limits do
    local limit = limits[index]
    local copy = {
      code = limit.code, count = limit.count, period_us = limit.period_us, capacity = limit.capacity, a = 0, b = 0, c = 0,
    }
    if limit.resets then copy.resets = limit.resets end
    if limit.terms then copy.terms = limit.terms end
    copies[index] = copy
  end
  return copies
end

-- Reads the next limits from a replica's numbers. Returns nil if one of them is invalid. A count of -n means the same
-- limits as key number n, because most keys of a level have the same limits. No count means no limits.
local function read_limits(next_number, keys)
  local limits, limit_count = {}, next_number() or 0
  if limit_count < 0 then return keys and keys[-limit_count] and keys[-limit_count].template end
  for index = 1, limit_count do
    local limit = {
      code = next_number(), count = next_number(), period_us = next_number(), capacity = next_number(),
      a = 0, b = 0, c = 0,
    }
    local reset_count = next_number()
    if reset_count > 0 then limit.resets = {} end
    for reset = 1, reset_count do limit.resets[reset] = next_number() end
    local rule = RULES[limit.code]
    if rule and rule.read then
      rule.read(limit, next_number)
      has_budgets = has_budgets or rule.is_budget == true
    end
    -- While Redis is unreachable, a process may already run all calls of its share: 0 leases are left.
    if not rule or limit.count < (rule.is_rate and 1 or 0) or limit.period_us < 1 or limit.capacity < 1 then return nil end
    limits[index] = limit
  end
  return limits
end

-- Makes limits active. If the kind of a limit is unchanged, its bookings stay.
local function apply_limits(found, limits, now_us)
  for index, limit in ipairs(limits) do
    local from = found and found[index]
    if from and from.code == limit.code then
      limit.a, limit.b, limit.c = from.a, from.b, from.c
      local is_same = from.count == limit.count and from.period_us == limit.period_us
        and from.capacity == limit.capacity
      if not is_same and RULES[limit.code].adapt then RULES[limit.code].adapt(from, limit, now_us) end
    end
  end
  return limits
end

-- Returns how many additional Redis keys (parts) these limits need.
local function count_parts(limits)
  local count = 0
  for index = 1, #limits do count = count + (RULES[limits[index].code].parts or 0) end
  return count
end

-- Assigns their additional Redis keys to limits. These keys come after the first `used` keys.
local function bind_keys(limits, used)
  for index = 1, #limits do
    local limit = limits[index]
    local parts = RULES[limit.code].parts
    if parts then limit.keys = { unpack(KEYS, used + 1, used + parts) } end
    used = used + (parts or 0)
  end
  return limits
end

-- Writes the budgets that this run of the script has changed. `thresholds` is as in lua/lib/limits/budget.lua.
local function save_budgets(limits, now_us, thresholds)
  if not has_budgets then return end
  for index = 1, #limits do
    local rule = RULES[limits[index].code]
    if rule.is_budget then rule.save(limits[index], now_us, thresholds) end
  end
end

-- How limits come in: from an asker's numbers, and from what Redis has kept.

local function copy_limits(limits)
  local copies = {}
  for index, limit in ipairs(limits) do
    copies[index] = {
      code = limit.code, count = limit.count, period_us = limit.period_us, capacity = limit.capacity,
      a = 0, b = 0, c = 0, resets = limit.resets,
    }
  end
  return copies
end

-- The limits that come next among an asker's numbers; nil if one of them can never work.
-- -1 stands for the same as those before: most keys have the same.
local function read_limits(next_number, before)
  local limits, limit_count = {}, next_number()
  if limit_count == -1 then return before and copy_limits(before) end
  for index = 1, limit_count do
    local limit = {
      code = next_number(), count = next_number(), period_us = next_number(), capacity = next_number(),
      a = 0, b = 0, c = 0,
    }
    local reset_count = next_number()
    if reset_count > 0 then limit.resets = {} end
    for reset = 1, reset_count do limit.resets[reset] = next_number() end
    if not RULES[limit.code] or limit.count < 1 or limit.period_us < 1 or limit.capacity < 1 then return nil end
    limits[index] = limit
  end
  return limits
end

-- Puts limits in force in the place of those found; what was booked under the same kind stays booked.
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

-- Gives the limits that keep something of their own the keys for it; returns how many keys were used up to here.
local function bind_keys(limits, used)
  for _, limit in ipairs(limits) do
    limit.keys = {}
    for part = 1, RULES[limit.code].parts or 0 do
      used = used + 1
      limit.keys[part] = KEYS[used]
    end
  end
  return used
end

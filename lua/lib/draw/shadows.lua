-- Shadow limits delay no calls. They only count the calls that they would have delayed. Their Redis key has twelve
-- doubles for each shadow: code count period_us capacity a b c last_us calls waited refused longest_us. The key
-- expires 30 days after the last call. This key and the parts of the shadow limits are the last keys of a request,
-- except for `after_them` keys.
local PER_SHADOW, KEEP_SHADOWS_MS = 12, 2592000000
-- A call that would have waited longer than this counts as refused, and books nothing.
local MOST_AHEAD_US = 3600000000

-- Reads the shadows at the end of a request and their state in Redis. Nil if one of them is invalid.
local function read_shadows(next_number, after_them)
  local limits, parts = read_limits(next_number), 0
  if not limits or #limits == 0 then return limits end
  for _, limit in ipairs(limits) do parts = parts + (RULES[limit.code].parts or 0) end
  local at = #KEYS - parts - (after_them or 0)
  bind_keys(limits, at)
  local packed = redis.call('GET', KEYS[at]) or ''
  local n = { struct.unpack('<' .. string.rep('d', #packed / 8), packed) }
  local shadows = { key = KEYS[at] }
  for index, limit in ipairs(limits) do
    local from = (index - 1) * PER_SHADOW
    local is_known = n[from + 1] == limit.code and n[from + 2] == limit.count and n[from + 3] == limit.period_us
      and n[from + 4] == limit.capacity
    if is_known then limit.a, limit.b, limit.c = n[from + 5], n[from + 6], n[from + 7] end
    shadows[index] = {
      limit = limit, last_us = is_known and n[from + 8] or 0, calls = is_known and n[from + 9] or 0,
      waited = is_known and n[from + 10] or 0, refused = is_known and n[from + 11] or 0,
      longest_us = is_known and n[from + 12] or 0,
    }
  end
  return shadows
end

local function save_shadows(shadows)
  local packed = {}
  for index, shadow in ipairs(shadows) do
    local limit = shadow.limit
    packed[index] = struct.pack('<dddddddddddd', limit.code, limit.count, limit.period_us, limit.capacity, limit.a, limit.b,
      limit.c, shadow.last_us, shadow.calls, shadow.waited, shadow.refused, shadow.longest_us)
  end
  redis.call('SET', shadows.key, table.concat(packed), 'PX', KEEP_SHADOWS_MS)
end

-- Counts a call that starts at a time. Books the slot that the call would have had under this shadow limit.
local function count_call(shadow, at_us, cost, drawer)
  if cost == 0 then return end
  local limit, rule = shadow.limit, RULES[shadow.limit.code]
  shadow.calls = shadow.calls + 1
  local from_us = math.max(at_us, shadow.last_us)
  local slot_us = cost > limit.capacity and math.huge or rule.earliest(limit, from_us, cost, drawer)
  if slot_us > at_us + MOST_AHEAD_US then
    shadow.refused = shadow.refused + 1
    return
  end
  if slot_us > at_us then shadow.waited = shadow.waited + 1 end
  shadow.longest_us = math.max(shadow.longest_us, slot_us - at_us)
  rule.commit(limit, slot_us, cost, drawer)
  shadow.last_us = slot_us
end

-- Counts the calls with booked slots: those of a run, or single slots. Slots from holes come first and were counted
-- before.
local function count_calls(shadows, granted, recycled, slot_request, main)
  local limit = main.scope.limits[1]
  local drain, step = limit and limit.count or 1, limit and main.costs[1] * limit.period_us or 0
  for index, shadow in ipairs(shadows) do
    local cost = slot_request.class.shadow_costs[index]
    for at = 0, granted.run_count - 1 do
      local slot_us = granted.run_at_us + math.ceil(math.max(0, granted.run_excess + at * step) / drain)
      count_call(shadow, slot_us, cost, main.drawer)
    end
    for at = recycled + 1, #granted.slots do count_call(shadow, granted.slots[at], cost, main.drawer) end
  end
end

-- Books the part of a call's cost above its estimate, or returns the unused part. If a call at that time would be
-- refused, this call most likely was refused too and booked nothing, so nothing is settled.
local function settle_shadows(shadows, slot_us, next_number, now_us)
  local drawer = { now_us = now_us }
  for _, shadow in ipairs(shadows) do
    local limit, rule, delta = shadow.limit, RULES[shadow.limit.code], next_number() or 0
    local at_us = delta > 0 and math.max(now_us, shadow.last_us) or slot_us
    if delta ~= 0 and rule.earliest(limit, math.max(slot_us, shadow.last_us), 1, drawer) <= slot_us + MOST_AHEAD_US then
      rule.commit(limit, at_us, delta, drawer)
    end
  end
end

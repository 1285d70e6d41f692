-- Loads and saves buckets and keys, and sets their expiry.

-- How long Redis keeps an idle bucket with its newest policy. Then the same for a bucket that an operator configured
-- or paused, and for a key.
local KEEP_MS, KEEP_OVERRIDE_MS, KEEP_KEY_MS = 3600000, 2592000000, 60000

-- Used as the asker when a limit is only read.
local NO_ASKER = { asker = '', now_us = 0, order = 0, lease = 0 }

-- Returns the time from which a scope delays nothing, except for a pause. All bookings have drained then, and the
-- cooldown and the gap are over.
local function drained_at_us(scope, now_us, drawer)
  local last_us = math.max(scope.cool_until_us, scope.gap_until_us, scope.since_us + scope.recover_us)
  for index = 1, #scope.limits do
    local limit = scope.limits[index]
    local rule = RULES[limit.code]
    if rule.is_rate and not rule.is_budget then
      -- A limit counts as full if the Redis keys of its parts are unknown, for instance under a different policy.
      local is_known = limit.keys or not rule.parts
      local free_us = is_known and rule.earliest(limit, now_us, limit.capacity, drawer)
        or scope.last_us + limit.period_us
      last_us = math.max(last_us, free_us)
    end
  end
  return math.max(now_us, last_us)
end

local function load_bucket(key)
  local packed = redis.call('GET', key)
  if not packed then return nil end
  local text_at = struct.unpack('<d', packed)
  local n = { struct.unpack('<' .. string.rep('d', text_at), packed) }
  return {
    generation = n[2], version = n[3], source = n[4], clock_us = n[5], skew_us = n[6],
    window_us = n[7], alive = n[8], alive_before = n[9], holes = n[10],
    shared = unpack_scope(n, 11), tried_us = n[text_at], text = string.sub(packed, text_at * 8 + 1),
  }
end

local function save_bucket(key, bucket)
  save_budgets(bucket.shared.limits, bucket.clock_us)
  local scope = pack_scope(bucket.shared)
  local head = struct.pack('<dddddddddd', 11 + #scope / 8, bucket.generation, bucket.version, bucket.source,
    bucket.clock_us, bucket.skew_us, bucket.window_us, bucket.alive, bucket.alive_before, bucket.holes)
  local is_kept = bucket.source > 0 or bucket.shared.paused_until_us > bucket.clock_us
  local keep_ms = is_kept and KEEP_OVERRIDE_MS or KEEP_MS
  local drained_ms = math.ceil((drained_at_us(bucket.shared, bucket.clock_us, NO_ASKER) - bucket.clock_us) / 1000)
  redis.call('SET', key, head .. scope .. struct.pack('<d', bucket.tried_us) .. bucket.text, 'PX',
    string.format('%.0f', drained_ms + keep_ms))
end

-- Returns the scope of a key under the given limits, with its state from Redis if there is one.
local function scope_of_key(packed, limits, now_us)
  local scope = nil
  if not packed then return fresh_scope(limits) end
  if #packed == 72 and #limits == 1 then
    local limit = limits[1]
    local _, code, count, period_us, capacity, a, b, c, last_us = struct.unpack('<ddddddddd', packed)
    if code == limit.code and count == limit.count and period_us == limit.period_us and capacity == limit.capacity then
      limit.a, limit.b, limit.c, scope = a, b, c, fresh_scope(limits)
      scope.last_us = last_us
      return scope
    end
  end
  scope = unpack_key(packed)
  scope.limits = apply_limits(scope.limits, limits, now_us)
  return scope
end

-- Passes the expiry as text, because Redis takes longer to format a number than for the rest of the command.
local function save_key(key, scope, now_us)
  save_budgets(scope.limits, now_us)
  local paused_us = math.max(0, scope.paused_until_us - now_us)
  local drained = math.max(drained_at_us(scope, now_us, NO_ASKER) - now_us, math.min(paused_us, KEEP_OVERRIDE_MS * 1000))
  redis.call('SET', key, pack_key(scope), 'PX', string.format('%.0f', math.ceil(drained / 1000) + KEEP_KEY_MS))
end

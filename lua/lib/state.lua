-- How buckets and keys are kept: whole numbers, packed as doubles, since a hash would cost twice as much a draw.

-- An idle bucket is kept for an hour, so that its newest policy outlives a quiet time; one that was
-- configured or paused by hand for a month.
local KEEP_MS, KEEP_OVERRIDE_MS, KEEP_KEY_MS = 3600000, 2592000000, 60000
local SCOPE_HEAD, PER_LIMIT = 12, 7

local function unpack_scope(numbers, at)
  local scope = {
    last_us = numbers[at], cool_until_us = numbers[at + 1], paused_until_us = numbers[at + 2],
    cut_us = numbers[at + 3], factor = numbers[at + 4], since_us = numbers[at + 5],
    recover_us = numbers[at + 6], gap_us = numbers[at + 7], gap_until_us = numbers[at + 8],
    turns_until_us = numbers[at + 9], uneven_until_us = numbers[at + 10], limits = {},
  }
  at = at + SCOPE_HEAD
  for index = 1, numbers[at - 1] do
    scope.limits[index] = {
      code = numbers[at], count = numbers[at + 1], period_us = numbers[at + 2], capacity = numbers[at + 3],
      a = numbers[at + 4], b = numbers[at + 5], c = numbers[at + 6],
    }
    at = at + PER_LIMIT
  end
  return scope, at
end

local function pack_scope(scope)
  local packed = struct.pack('<dddddddddddd', scope.last_us, scope.cool_until_us, scope.paused_until_us,
    scope.cut_us, scope.factor, scope.since_us, scope.recover_us, scope.gap_us, scope.gap_until_us,
    scope.turns_until_us, scope.uneven_until_us, #scope.limits)
  for _, l in ipairs(scope.limits) do
    packed = packed .. struct.pack('<ddddddd', l.code, l.count, l.period_us, l.capacity, l.a, l.b, l.c)
  end
  return packed
end

-- When nothing of a scope matters any more: all has drained, and every pause is over.
local function drained_us(scope, now_us, drawer)
  local last_us = math.max(scope.cool_until_us, scope.gap_until_us, scope.since_us + scope.recover_us)
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if rule.is_rate then
      -- An asker of another policy cannot tell what a limit keeps beside its numbers.
      local is_known = limit.keys or not rule.parts
      local free_us = is_known and rule.earliest(limit, now_us, limit.capacity, drawer)
        or scope.last_us + limit.period_us
      last_us = math.max(last_us, free_us)
    end
  end
  return math.max(0, last_us - now_us)
end

local function load_bucket(key)
  local packed = redis.call('GET', key)
  if not packed then return nil end
  local text_at = struct.unpack('<d', packed)
  local n = { struct.unpack('<' .. string.rep('d', text_at), packed) }
  return {
    generation = n[2], version = n[3], is_override = n[4] == 1, clock_us = n[5], skew_us = n[6],
    window_us = n[7], alive = n[8], alive_before = n[9], holes = n[10],
    shared = unpack_scope(n, 11), text = string.sub(packed, text_at * 8 + 1),
  }
end

local function save_bucket(key, b)
  local scope = pack_scope(b.shared)
  local head = struct.pack('<dddddddddd', 10 + #scope / 8, b.generation, b.version, b.is_override and 1 or 0,
    b.clock_us, b.skew_us, b.window_us, b.alive, b.alive_before, b.holes)
  local is_kept = b.is_override or b.shared.paused_until_us > b.clock_us
  local keep_ms = is_kept and KEEP_OVERRIDE_MS or KEEP_MS
  local drained_ms = math.ceil(drained_us(b.shared, b.clock_us, {}) / 1000)
  redis.call('SET', key, head .. scope .. b.text, 'PX', drained_ms + keep_ms)
end

-- The scope of a key, with its limits as the asker knows them.
local function load_key(key, limits, now_us)
  local packed = redis.call('GET', key)
  if not packed then return fresh_scope(limits) end
  local scope = unpack_scope({ struct.unpack('<' .. string.rep('d', #packed / 8), packed) }, 1)
  scope.limits = apply_limits(scope.limits, limits, now_us)
  return scope
end

local function save_key(key, scope, now_us)
  local paused_us = math.max(0, scope.paused_until_us - now_us)
  local drained = math.max(drained_us(scope, now_us, {}), math.min(paused_us, KEEP_OVERRIDE_MS * 1000))
  redis.call('SET', key, pack_scope(scope), 'PX', math.ceil(drained / 1000) + KEEP_KEY_MS)
end

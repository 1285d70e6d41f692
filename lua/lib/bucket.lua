-- A bucket's state: twelve whole numbers, packed as doubles, since a hash would cost 6 us a draw and this costs 3.
-- Twin of src/core/bucket-state.ts. A bucket is its own limit: { count, period_us, burst, ... }.

-- An idle bucket is kept for an hour, so that its newest policy outlives a quiet time.
local KEEP_MS = 3600000
local PACKED = '<dddddddddddd'

local function load_bucket(key)
  local packed = redis.call('GET', key)
  if not packed then return nil end
  local generation, count, period_us, burst, level, clock_us, skew_us, window_us, alive,
    alive_before, turns_until_us, holes = struct.unpack(PACKED, packed)
  return {
    generation = generation, count = count, period_us = period_us, burst = burst,
    level = level, clock_us = clock_us, skew_us = skew_us,
    window_us = window_us, alive = alive, alive_before = alive_before,
    turns_until_us = turns_until_us, holes = holes,
  }
end

local function save_bucket(key, b)
  local packed = struct.pack(PACKED, b.generation, b.count, b.period_us, b.burst, b.level, b.clock_us,
    b.skew_us, b.window_us, b.alive, b.alive_before, b.turns_until_us, b.holes)
  redis.call('SET', key, packed, 'PX', math.ceil(b.level / b.count / 1000) + KEEP_MS)
end

-- A server whose clock stepped back neither stalls the bucket nor lets it book a time twice.
local function advance(b, server_us)
  local now = math.max(server_us + b.skew_us, b.clock_us)
  local elapsed = now - b.clock_us
  -- The division comes first: count x elapsed could pass 2^53 after a long idle time.
  if elapsed >= b.level / b.count then b.level = 0 else b.level = b.level - b.count * elapsed end
  b.skew_us = now - server_us
  b.clock_us = now
end

-- Whole us until an excess has leaked, rounded up so that no call is early.
local function drain_us(limit, excess)
  if excess <= 0 then return 0 end
  return math.ceil(excess / limit.count)
end

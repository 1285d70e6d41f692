-- Who draws from a bucket, and whose turn comes when. Twin of src/core/turns.ts.
local WINDOW_US = 1000000
local KEEP_TURNS_MS = 60000

-- Counts the askers of each second. Each says when it drew last, so that no list of them is needed.
local function count_alive(bucket, drew_us)
  local age = bucket.clock_us - bucket.window_us
  bucket.is_new_window = age >= WINDOW_US
  if bucket.is_new_window then
    bucket.alive_before = age < 2 * WINDOW_US and bucket.alive or 0
    bucket.alive = 0
    bucket.window_us = bucket.clock_us
  end
  if drew_us == 0 or drew_us < bucket.window_us then bucket.alive = bucket.alive + 1 end
  -- A lost state may meet askers that it counts as known: it has forgotten them.
  return math.max(1, bucket.alive, bucket.alive_before)
end

-- An even share of a horizon; one alone leaves a quarter, so that it can ask again before it runs dry.
local function share_of(slots, alive)
  return math.max(1, math.floor(math.min(slots * 0.75, slots / alive)))
end

-- How many askers have their turn at or after since_us, and before until_us if that is given.
local function count_turns(key, bucket, since_us, until_us)
  if bucket.turns_until_us < since_us then return 0 end
  local before = until_us and string.format('(%.0f', until_us) or '+inf'
  return redis.call('ZCOUNT', key, since_us, before)
end

-- How many wait beside an asker that waits itself.
local function count_others(key, bucket, since_us)
  return math.max(0, count_turns(key, bucket, since_us, nil) - 1)
end

local function keep_turn(key, bucket, asker, turn_us, since_us)
  local is_new = redis.call('ZADD', key, turn_us, asker) == 1
  bucket.turns_until_us = math.max(bucket.turns_until_us, turn_us)
  if not is_new and not bucket.is_new_window then return end
  -- Askers that never came back.
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('(%.0f', since_us))
  local keep_ms = math.ceil((bucket.turns_until_us - bucket.clock_us) / 1000) + KEEP_TURNS_MS
  redis.call('PEXPIRE', key, keep_ms)
end

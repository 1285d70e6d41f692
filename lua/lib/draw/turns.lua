-- How many replicas draw from a bucket, and when the turn of each comes. Here a replica is an asker, by the name that it
-- asks with. Twin of src/core/draw/turns.ts.
-- A scope's turns are a zset at scope.turns_key: "rank step asker" -> us of that asker's next turn.
local WINDOW_US, KEEP_TURNS_MS, NORMAL_RANK = 1000000, 60000, 2

-- Counts the askers of each second. Each says when it last drew, so no list of them is needed.
local function count_asker(bucket, drew_us)
  local age = bucket.clock_us - bucket.window_us
  bucket.is_new_window = age >= WINDOW_US
  if bucket.is_new_window then
    bucket.alive_before = age < 2 * WINDOW_US and bucket.alive or 0
    bucket.alive = 0
    bucket.window_us = bucket.clock_us
  end
  if drew_us == 0 or drew_us < bucket.window_us then bucket.alive = bucket.alive + 1 end
end

-- An even share of a horizon. A lone asker leaves a quarter, so that it can ask again before its slots run out.
local function share_of(slots, alive)
  return math.max(1, math.floor(math.min(slots * 0.75, slots / alive)))
end

-- How many slots, of the size of this asker's, to leave to turns before until_us: for each a share, or one call of its
-- asker if that is larger.
local function slots_before(scope, claim, own, until_us)
  if scope.turns_until_us < claim.since_us then return 0 end
  local are_all_normal = scope.uneven_until_us < claim.since_us
  if are_all_normal and claim.rank < NORMAL_RANK then return 0 end
  local before = until_us == math.huge and '+inf' or string.format('(%.0f', until_us)
  if are_all_normal then
    local is_own_among = own.turn_us >= claim.since_us and own.turn_us < until_us
    -- All wishes of a draw ask for the same count, until one of them gets a turn.
    if scope.counted_before ~= before then
      scope.counted_before, scope.counted = before, redis.call('ZCOUNT', scope.turns_key, claim.since_us, before)
    end
    return math.max(0, scope.counted - (is_own_among and 1 or 0)) * claim.share
  end
  local slots = 0
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', scope.turns_key, claim.since_us, before)) do
    local rank, step_us = string.match(name, '^(%d+) (%d+)')
    if name ~= own.turn_name and tonumber(rank) <= claim.rank then
      slots = slots + math.max(claim.share, math.ceil(tonumber(step_us) / claim.step_us))
    end
  end
  return slots
end

-- Sets the asker's next turn; a turn_us of 0 takes it away. Returns the turn's name.
local function keep_turn(scope, claim, own, turn_us, is_new_window, now_us)
  local name = turn_us == 0 and '' or string.format('%d %.0f %s', claim.rank, claim.step_us, claim.asker)
  scope.counted_before = nil
  if own.turn_name ~= name and own.turn_name ~= '' then redis.call('ZREM', scope.turns_key, own.turn_name) end
  if turn_us == 0 then return name end
  local is_new = redis.call('ZADD', scope.turns_key, turn_us, name) == 1
  scope.turns_until_us = math.max(scope.turns_until_us, turn_us)
  if claim.rank ~= NORMAL_RANK or (claim.is_costly and claim.share == 1) then
    scope.uneven_until_us = math.max(scope.uneven_until_us, turn_us)
  end
  if not is_new and not is_new_window then return name end
  -- Forgets askers that never came back.
  redis.call('ZREMRANGEBYSCORE', scope.turns_key, '-inf', string.format('(%.0f', claim.since_us))
  local keep_ms = math.ceil((scope.turns_until_us - now_us) / 1000) + KEEP_TURNS_MS
  redis.call('PEXPIRE', scope.turns_key, keep_ms)
  return name
end

-- @include lib/lanes/names
-- Decides the next job of a queue (feed, feed_one). Jobs wait for their turn in lanes, one for each key: parked in BullMQ's
-- delayed set, served by start-time fair queueing (Goyal, Vin and Cheng, 1996). Its tags count calls: a job's share of
-- the bucket, divided by its lane's weight. A lane whose key has no room is aside (`blocked`) until then.

local DAY_MS = 86400000
-- A lane whose key had no room is tried with one job at a time, a probe, until this many got their slots at once.
local PROBES = 2
-- A probe whose worker died ends after this time.
local PROBE_MS = 5000
-- A job that was fed and is not fetched within this time has been removed, or all workers are busy: then it joins its
-- lane anew when it is fetched.
local FED_MS = 60000
-- The news that a key has room may get lost, as when no worker was there. So every RECHECK_EVERY_MS, RECHECKED_LANES of the lanes
-- that are aside for longer are tried with a job all the same, in turns.
local RECHECK_EVERY_MS, RECHECKED_LANES = 10000, 100
-- Workers hold this many jobs more than they start, so that they can find out whether there is more room.
local SPARE = 2

local function open_lanes(keys, prefix, now_ms)
  local lanes = lane_names(prefix)
  local v, parked, looked_at_ms, looked = unpack(redis.call('HMGET', lanes.state, 'v', 'parked', 'lookedAt', 'looked'))
  lanes.jobs, lanes.now_ms, lanes.v, lanes.parked = prefix, now_ms, tonumber(v) or 0, tonumber(parked) or 0
  lanes.looked_at_ms, lanes.looked = tonumber(looked_at_ms) or 0, tonumber(looked) or 0
  lanes.wait, lanes.delayed, lanes.events, lanes.meta, lanes.marker = unpack(keys)
  lanes.known = {}
  return lanes
end

-- Whether there is any 'slow', 'weights', 'shares' or 'deadlines': most queues have none, and most calls do not ask.
local function has(lanes, name)
  if lanes.known[name] == nil then lanes.known[name] = redis.call('EXISTS', lanes[name]) == 1 end
  return lanes.known[name]
end

local function close_lanes(lanes)
  -- With no job left, no lane has had more than another: the time of turns starts anew.
  if lanes.parked <= 0 then lanes.v, lanes.parked = 0, 0 end
  redis.call('HSET', lanes.state, 'v', string.format('%.17g', lanes.v), 'parked', string.format('%.0f', lanes.parked))
  if lanes.parked == 0 then redis.call('UNLINK', lanes.finish)
  else redis.call('ZREMRANGEBYSCORE', lanes.finish, '-inf', string.format('%.17g', lanes.v)) end
end

-- An idle lane saves up no credit, and keeps the debt that it had when it ran empty.
local function make_ready(lanes, key)
  local finish = tonumber(redis.call('ZSCORE', lanes.finish, key)) or 0
  redis.call('ZADD', lanes.ready, string.format('%.17g', math.max(lanes.v, finish)), key)
end

-- Puts a lane back in line, unless it is empty or in line already.
local function wake_lane(lanes, key)
  redis.call('ZREM', lanes.blocked, key)
  if redis.call('EXISTS', lanes.lane .. key) == 1 and not redis.call('ZSCORE', lanes.ready, key) then
    make_ready(lanes, key)
  end
end

local function wake_due_lanes(lanes)
  local due = redis.call('ZRANGEBYSCORE', lanes.blocked, '-inf', lanes.now_ms, 'LIMIT', 0, 200)
  for _, key in ipairs(due) do wake_lane(lanes, key) end
end

local function wake_some_lanes(lanes)
  local since_ms = lanes.now_ms - lanes.looked_at_ms
  -- Below 0 the clock has stepped back.
  if lanes.parked <= 0 or since_ms >= 0 and since_ms < RECHECK_EVERY_MS then return end
  local from_ms = '(' .. string.format('%.0f', lanes.now_ms + RECHECK_EVERY_MS)
  local aside = redis.call('ZCOUNT', lanes.blocked, from_ms, '+inf')
  local first = aside > RECHECKED_LANES and lanes.looked % aside or 0
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', lanes.blocked, from_ms, '+inf', 'LIMIT', first, RECHECKED_LANES)) do
    wake_lane(lanes, key)
  end
  redis.call('HSET', lanes.state, 'lookedAt', string.format('%.0f', lanes.now_ms), 'looked', first + RECHECKED_LANES)
end

-- Moves a job as BullMQ's own promotion does: from the delayed set to where workers fetch.
local function promote(lanes, id)
  if redis.call('ZREM', lanes.delayed, id) == 0 then return false end
  redis.call('HSET', lanes.jobs .. id, 'delay', 0)
  redis.call('LPUSH', lanes.wait, id)
  redis.call('XADD', lanes.events, 'MAXLEN', '~', 10000, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
  redis.call('ZADD', lanes.fed, lanes.now_ms, id)
  lanes.has_promoted = true
  return true
end

-- Wakes BullMQ's workers, once for all promoted jobs.
local function announce(lanes)
  if lanes.has_promoted and redis.call('HEXISTS', lanes.meta, 'paused') == 0 then
    redis.call('ZADD', lanes.marker, 0, '0')
  end
end

local function weight_of(lanes, key)
  return has(lanes, 'weights') and tonumber(redis.call('HGET', lanes.weights, key)) or 1
end

local function share_of(lanes, id)
  return has(lanes, 'shares') and tonumber(redis.call('HGET', lanes.shares, id)) or 1
end

-- Removes what is kept of a job while it is parked.
local function forget_job(lanes, id)
  lanes.parked, lanes.is_changed = lanes.parked - 1, true
  if has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
  if has(lanes, 'deadlines') then redis.call('ZREM', lanes.deadlines, id) end
end

local function forget_lane(lanes, key)
  redis.call('ZREM', lanes.ready, key)
  redis.call('ZREM', lanes.blocked, key)
  if has(lanes, 'weights') then redis.call('HDEL', lanes.weights, key) end
  if has(lanes, 'slow') then redis.call('HDEL', lanes.slow, key) end
end

-- Feeds the next job of the lane whose turn it is; false if no lane is ready.
local function feed_one(lanes)
  local first = redis.call('ZRANGE', lanes.ready, 0, 0, 'WITHSCORES')
  local key = first[1]
  if not key then return false end
  local lane, start = lanes.lane .. key, tonumber(first[2])
  local id = redis.call('ZPOPMIN', lane)[1]
  local finish = start
  if id then
    local share = share_of(lanes, id)
    forget_job(lanes, id)
    if promote(lanes, id) then
      lanes.v = math.max(lanes.v, start)
      finish = start + share / weight_of(lanes, key)
    end
  end
  local is_empty = redis.call('EXISTS', lane) == 0
  if not is_empty and not (has(lanes, 'slow') and redis.call('HEXISTS', lanes.slow, key) == 1) then
    redis.call('ZADD', lanes.ready, string.format('%.17g', finish), key)
    return true
  end
  redis.call('ZADD', lanes.finish, string.format('%.17g', finish), key)
  redis.call('ZREM', lanes.ready, key)
  if is_empty then forget_lane(lanes, key)
  else redis.call('ZADD', lanes.blocked, lanes.now_ms + PROBE_MS, key) end
  return true
end

-- Jobs whose deadline has passed go to a worker at once, which fails them as expired.
local function feed_expired(lanes)
  if not has(lanes, 'deadlines') then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', lanes.deadlines, '-inf', lanes.now_ms, 'LIMIT', 0, 50)) do
    local key = key_of(redis.call('HGET', lanes.jobs .. id, 'name') or '')
    if key then
      local lane = lanes.lane .. key
      if redis.call('ZREM', lane, id) == 1 then forget_job(lanes, id) end
      if redis.call('EXISTS', lane) == 0 then forget_lane(lanes, key) end
      promote(lanes, id)
    end
    redis.call('ZREM', lanes.deadlines, id)
  end
end

-- How many jobs to feed: what all workers together want, and SPARE while there are workers, less the jobs that are on
-- their way.
local function wanted_of(lanes, wants_key)
  local wanted, spare = 0, 0
  local wants = redis.call('HGETALL', wants_key)
  for at = 1, #wants, 2 do
    local want, until_ms = string.match(wants[at + 1], '^(-?%d+) (%d+)$')
    if until_ms and tonumber(until_ms) > lanes.now_ms then
      wanted, spare = wanted + tonumber(want), SPARE
    else
      redis.call('HDEL', wants_key, wants[at])
    end
  end
  return wanted + spare - redis.call('ZCARD', lanes.fed)
end

local function feed(lanes, wants_key)
  wake_due_lanes(lanes)
  wake_some_lanes(lanes)
  feed_expired(lanes)
  redis.call('ZREMRANGEBYSCORE', lanes.fed, '-inf', lanes.now_ms - FED_MS)
  for _ = 1, math.min(wanted_of(lanes, wants_key), 1000) do
    if not feed_one(lanes) then break end
  end
  announce(lanes)
end

-- Delays jobs. A debounced job is delayed again by each job that replaces its data.

-- Delays a job as BullMQ does. The score is in ms, with 12 more bits for the order within one ms.
local function delay_until(lanes, id, at_ms)
  local first, last = at_ms * 4096, at_ms * 4096 + 4095
  local taken = redis.call('ZREVRANGEBYSCORE', lanes.delayed, last, first, 'WITHSCORES', 'LIMIT', 0, 1)[2]
  local score = taken and math.min(tonumber(taken) + 1, last) or first
  redis.call('ZADD', lanes.delayed, string.format('%.0f', score), id)
  redis.call('XADD', lanes.events, '*', 'event', 'delayed', 'jobId', id, 'delay', string.format('%.0f', at_ms))
  -- Updates the marker, because a worker that blocks on it may now have to wake up earlier.
  local soonest = redis.call('ZRANGE', lanes.delayed, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', lanes.marker, string.format('%.0f', math.floor(tonumber(soonest) / 4096)), '1')
end

-- True if a job waits for the end of its burst. False for a job that is due, has begun before, or is in its lane.
local function is_postponable(lanes, id, key, starts, after)
  local score = redis.call('ZSCORE', lanes.delayed, id)
  if not score or (tonumber(starts) or 0) > 0 then return false end
  if key and redis.call('ZSCORE', lanes.lane .. key, id) then return false end
  return after ~= false or tonumber(score) / 4096 > lanes.now_ms
end

-- Delays a debounced job until `waitMs` from now, and at most until `mostMs` after the first job of its burst. Returns
-- its new due time, or nil if the job keeps its time.
local function postpone(lanes, id, dedupe)
  local job = lanes.jobs .. id
  local name, starts, after, stored_at_ms, since_ms =
    unpack(redis.call('HMGET', job, 'name', 'ats', 'sluiceAfter', 'timestamp', 'sluiceSince'))
  local key = key_of(name)
  if not is_postponable(lanes, id, key, starts, after) then return nil end
  local due_ms = lanes.now_ms + dedupe.waitMs
  if dedupe.mostMs then
    due_ms = math.max(lanes.now_ms, math.min(due_ms, tonumber(since_ms or stored_at_ms) + dedupe.mostMs))
  end
  redis.call('HSET', job, 'delay', string.format('%.0f', math.max(0, due_ms - tonumber(stored_at_ms))))
  delay_until(lanes, id, due_ms)
  if lanes.bounds_keys and key then note_later(lanes, key, id, due_ms) end
  return due_ms
end

-- Returns the delay of a job for its stored options; nil for none. A delay of PARK_MS marks a job that is on its way to
-- its lane (src/queue/bullmq/stored-job.ts), so another value is returned.
local function delay_of(lanes, id)
  local delay = tonumber(redis.call('HGET', lanes.jobs .. id, 'delay')) or 0
  if delay == 10000 then return delay + 1 end
  return delay > 0 and delay or nil
end

-- @include lib/lanes/lanes
-- Manages the runs of a recurring job. A schedule has one current run at a time. The schedule's score among all
-- schedules identifies this run. The current run is planned, due, in its lane, held by a worker, or waits for its
-- next attempt. When it begins, the next run is planned, so at most one run waits. Runs that have begun and not ended
-- are in `open`, each with the number of the fetch with which it began. `at` is the next time of the schedule that
-- has neither run nor been missed.

-- Reads a schedule. `keys` are wait, delayed, events, meta, marker, active, prioritized, pc, failed, the schedules,
-- and the schedule.
local function open_schedule(keys, prefix, name, now_ms)
  local schedule = { name = name, all = keys[10], key = keys[11], open = keys[11] .. ':open', jobs = prefix }
  schedule.lanes = open_lanes(keys, prefix, now_ms)
  schedule.active, schedule.prioritized, schedule.counter, schedule.failed = keys[6], keys[7], keys[8], keys[9]
  schedule.now_ms = now_ms
  schedule.due_ms = tonumber(redis.call('ZSCORE', schedule.all, name))
  local every, pattern, zone, at, missed, overlap =
    unpack(redis.call('HMGET', schedule.key, 'every', 'pattern', 'tz', 'sluice:at', 'sluice:missed', 'sluice:overlap'))
  schedule.every, schedule.pattern, schedule.zone = tonumber(every), pattern or '', zone or ''
  schedule.makes_up, schedule.may_overlap = missed == 'once', overlap ~= 'no'
  if schedule.due_ms then
    schedule.run = 'repeat:' .. name .. ':' .. string.format('%.0f', schedule.due_ms)
    -- Uses the later time if a worker of an earlier version has planned a later run.
    schedule.at = math.max(tonumber(at) or 0, schedule.due_ms)
  end
  return schedule
end

-- Returns 'ended' (ended or removed), 'runs', 'held' (by a worker that has not begun it), or 'waits' (all other
-- cases).
local function state_of(schedule, id)
  local stored, finished, fetches = unpack(redis.call('HMGET', schedule.jobs .. id, 'timestamp', 'finishedOn', 'ats'))
  if not stored or finished then return 'ended' end
  if not redis.call('LPOS', schedule.active, id) then return 'waits' end
  return redis.call('HGET', schedule.open, id) == (fetches or '0') and 'runs' or 'held'
end

-- Removes a waiting run from all lists and sets. A worker that holds the run notices this before it begins the run.
-- The run's lock expires.
local function take_out(schedule, id)
  local lanes = schedule.lanes
  local key = key_of(redis.call('HGET', schedule.jobs .. id, 'name') or '')
  if key and redis.call('ZREM', lanes.lane .. key, id) == 1 then
    forget_job(lanes, id, key)
    if redis.call('EXISTS', lanes.lane .. key) == 0 then forget_lane(lanes, key) end
  end
  redis.call('ZREM', lanes.delayed, id)
  redis.call('ZREM', schedule.prioritized, id)
  redis.call('LREM', lanes.wait, 1, id)
  redis.call('LREM', schedule.active, 1, id)
  redis.call('HDEL', schedule.open, id)
end

local function remove_run(schedule, id)
  take_out(schedule, id)
  redis.call('DEL', schedule.jobs .. id, schedule.jobs .. id .. ':logs')
  redis.call('XADD', schedule.lanes.events, '*', 'event', 'removed', 'jobId', id, 'prev', 'waiting')
end

-- Fails a run permanently although it has attempts left.
local function fail_run(schedule, id)
  local job, now = schedule.jobs .. id, string.format('%.0f', schedule.now_ms)
  take_out(schedule, id)
  redis.call('HSETNX', job, 'failedReason', 'Its schedule was ended while it ran, and its worker was lost')
  redis.call('HSET', job, 'finishedOn', now)
  redis.call('ZADD', schedule.failed, now, id)
  local reason = redis.call('HGET', job, 'failedReason')
  redis.call('XADD', schedule.lanes.events, '*', 'event', 'failed', 'jobId', id, 'failedReason', reason, 'prev', 'active')
end

-- True if an attempt at a run has ended, or its worker was lost.
local function was_tried(schedule, id)
  local attempts, losses = unpack(redis.call('HMGET', schedule.jobs .. id, 'atm', 'stc'))
  return (tonumber(attempts) or 0) > 0 or (tonumber(losses) or 0) > 0
end

-- Writes the final state at the end of a script.
local function close_schedule(schedule)
  if schedule.lanes.is_changed then close_lanes(schedule.lanes) end
end

-- @include lib/flows/flow-keys
-- Returns where a pending job is: "lane", "delayed", "prioritized" or "wait"; nil for any other job.
local function location_of(lanes, id, key)
  if redis.call('ZSCORE', lanes.delayed, id) then
    return key and redis.call('ZSCORE', lanes.lane .. key, id) and 'lane' or 'delayed'
  end
  if redis.call('ZSCORE', lanes.prioritized, id) then return 'prioritized' end
  return redis.call('LPOS', lanes.wait, id) and 'wait' or nil
end

-- Removes a job from the list, set or lane that contains it, and from the delayed set.
local function leave_location(lanes, id, key, place)
  if place == 'lane' then
    redis.call('ZREM', lanes.lane .. key, id)
    forget_job(lanes, id, key)
    if redis.call('EXISTS', lanes.lane .. key) == 0 then forget_lane(lanes, key) end
  end
  if place == 'prioritized' then redis.call('ZREM', lanes.prioritized, id)
  elseif place == 'wait' then redis.call('LREM', lanes.wait, 1, id)
  else redis.call('ZREM', lanes.delayed, id) end
end

-- True if a job is the planned run of its schedule. Without this run, no other run would follow.
local function is_planned_run(schedules, id, schedule)
  local next_ms = schedule and redis.call('ZSCORE', schedules, schedule)
  return next_ms and id == 'repeat:' .. schedule .. ':' .. string.format('%.0f', tonumber(next_ms))
end

-- True if a run has begun before, and waits for its next attempt.
local function has_begun_as_run(lanes, id, schedule)
  return redis.call('HEXISTS', lanes.jobs .. 'repeat:' .. schedule .. ':open', id) == 1
end

-- Deletes all data of a job that is in no list, set or lane anymore.
local function erase(lanes, id, dedupe_id, place)
  local job, held = lanes.jobs .. id, dedupe_id and lanes.jobs .. 'de:' .. dedupe_id
  if held and redis.call('GET', held) == id then redis.call('DEL', held) end
  redis.call('UNLINK', job, job .. ':logs')
  local flows = flow_names(lanes.jobs)
  forget_parents(flows, id)
  if place == 'ended' then forget_children(flows, id) end
  redis.call('XADD', lanes.events, '*', 'event', 'removed', 'jobId', id, 'prev', place)
end

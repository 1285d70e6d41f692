-- Where a job waits that no worker has: "lane", "delayed", "prioritized" or "wait"; nil for any other job.
local function place_of(lanes, id, key)
  if redis.call('ZSCORE', lanes.delayed, id) then
    return key and redis.call('ZSCORE', lanes.lane .. key, id) and 'lane' or 'delayed'
  end
  if redis.call('ZSCORE', lanes.prioritized, id) then return 'prioritized' end
  return redis.call('LPOS', lanes.wait, id) and 'wait' or nil
end

-- Takes a job out of its place, in the delayed set too.
local function leave_place(lanes, id, key, place)
  if place == 'lane' then
    redis.call('ZREM', lanes.lane .. key, id)
    forget_job(lanes, id, key)
    if redis.call('EXISTS', lanes.lane .. key) == 0 then forget_lane(lanes, key) end
  end
  if place == 'prioritized' then redis.call('ZREM', lanes.prioritized, id)
  elseif place == 'wait' then redis.call('LREM', lanes.wait, 1, id)
  else redis.call('ZREM', lanes.delayed, id) end
end

-- Whether a job is the run that its schedule has planned: without it, no other would follow.
local function is_planned_run(schedules, id, schedule)
  local next_ms = schedule and redis.call('ZSCORE', schedules, schedule)
  return next_ms and id == 'repeat:' .. schedule .. ':' .. string.format('%.0f', tonumber(next_ms))
end

-- Whether it has begun before, as the runs of a schedule that wait for their next attempt.
local function has_begun_as_run(lanes, id, schedule)
  return redis.call('HEXISTS', lanes.jobs .. 'repeat:' .. schedule .. ':open', id) == 1
end

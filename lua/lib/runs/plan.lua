-- @include lib/runs/schedule
-- Plans the next run of a schedule in BullMQ's format, because workers of earlier versions plan the following run
-- from its options.

-- True if the current run belongs to the planned time of the schedule. False for an extra run.
local function is_in_time(schedule)
  return schedule.at == schedule.due_ms
end

-- Returns the options of a run: the planned ones, and those of its schedule's template. Handles them as text, because
-- decoding and encoding them again may lose digits.
local function run_opts(schedule, id, planned)
  local template, count = unpack(redis.call('HMGET', schedule.key, 'opts', 'ic'))
  local times = { count = tonumber(count) or 1 }
  if schedule.every then
    times.every, times.offset = schedule.every, planned.prevMillis % schedule.every
  else
    times.pattern, times.tz = schedule.pattern, schedule.zone
  end
  local opts = string.format('{"jobId":%s,"delay":%.0f,"timestamp":%.0f,"prevMillis":%.0f,"repeat":%s',
    cjson.encode(id), planned.delay, planned.timestamp, planned.prevMillis, cjson.encode(times))
  return opts .. ((not template or template == '{}') and '}' or ',' .. string.sub(template, 2))
end

-- Stores a run that is due at this time, and makes it the current run.
local function plan(schedule, at_ms)
  local lanes, id, job = schedule.lanes, nil, nil
  repeat
    id = 'repeat:' .. schedule.name .. ':' .. string.format('%.0f', at_ms)
    job = schedule.jobs .. id
    local is_taken = redis.call('EXISTS', job) == 1
    if is_taken then at_ms = at_ms + 1 end
  until not is_taken
  local now_ms, delay_ms = schedule.now_ms, math.max(0, at_ms - schedule.now_ms)
  local opts = run_opts(schedule, id, { delay = delay_ms, timestamp = now_ms, prevMillis = at_ms })
  local name, data = unpack(redis.call('HMGET', schedule.key, 'name', 'data'))
  local priority = cjson.decode(opts).priority or 0
  redis.call('HSET', job, 'name', name, 'data', data or '{}', 'opts', opts, 'timestamp', string.format('%.0f', now_ms),
    'delay', string.format('%.0f', delay_ms), 'priority', priority, 'rjk', schedule.name)
  redis.call('XADD', lanes.events, '*', 'event', 'added', 'jobId', id, 'name', name)
  if delay_ms == 0 and priority > 0 then
    local order = redis.call('INCR', schedule.counter)
    redis.call('ZADD', schedule.prioritized, string.format('%.0f', priority * 2 ^ 32 + order % 2 ^ 32), id)
    redis.call('XADD', lanes.events, '*', 'event', 'waiting', 'jobId', id)
    announce(lanes)
  else
    redis.call('ZADD', lanes.delayed, string.format('%.0f', at_ms * 4096), id)
    redis.call('XADD', lanes.events, '*', 'event', 'delayed', 'jobId', id, 'delay', string.format('%.0f', at_ms))
    local first = redis.call('ZRANGE', lanes.delayed, 0, 0, 'WITHSCORES')[2]
    redis.call('ZADD', lanes.marker, string.format('%.0f', math.floor(first / 4096)), '1')
  end
  redis.call('ZADD', schedule.all, string.format('%.0f', at_ms), schedule.name)
  redis.call('HINCRBY', schedule.key, 'ic', 1)
  schedule.due_ms, schedule.run = at_ms, id
end

-- Returns the next future time of a schedule, and the number of times that have passed since the last counted one.
-- Computes the times of `every`, and takes those of cron from the arguments. Returns nil if the arguments are outdated.
local function next_time(schedule, given)
  if not schedule.every then
    local fits = given and given.cron == schedule.pattern and given.timeZone == schedule.zone
      and given.atMs == schedule.at and given.isInTime == is_in_time(schedule) and given.nextMs > schedule.now_ms
    if not fits then return nil end
    return given.nextMs, given.passed
  end
  local first = is_in_time(schedule) and schedule.at + schedule.every or schedule.at
  local passed = math.max(0, math.floor((schedule.now_ms - first) / schedule.every) + 1)
  return first + passed * schedule.every, passed
end

-- Makes an earlier run, which has already begun once, the current run again.
local function make_current(schedule, id)
  redis.call('ZADD', schedule.all, string.match(id, '%d+$'), schedule.name)
end

-- Counts the passed times and plans the next run: for the next time, or immediately to make up for missed times. If a
-- run waits for its next attempt, that run becomes the current one instead.
local function plan_next(schedule, next_ms, missed, is_at_once, retried)
  if missed > 0 then redis.call('HINCRBY', schedule.key, 'sluice:count', missed) end
  redis.call('HSET', schedule.key, 'sluice:at', string.format('%.0f', next_ms))
  schedule.at = next_ms
  if retried then return make_current(schedule, retried) end
  plan(schedule, is_at_once and schedule.now_ms or next_ms)
end

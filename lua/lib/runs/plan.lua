-- @include lib/runs/schedule
-- Plans the next run of a schedule, as BullMQ stores it; workers of earlier builds plan the run after it by its options.

-- When the current run of a schedule was planned for has had this run, unless it is an extra one.
local function is_in_time(schedule)
  return schedule.at == schedule.due_ms
end

-- The options of a run: what was planned for it, and those of its schedule's template. As text: what is decoded and
-- encoded again may lose digits.
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

-- Stores a run that waits from then on, and makes it the current one.
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

-- The first time of a schedule that is yet to come, and how many have passed since the last one that was counted. Those
-- of `every` are computed here; those of cron are given. Nil if what is given no longer fits.
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

-- Makes a run current again that has begun before.
local function make_current(schedule, id)
  redis.call('ZADD', schedule.all, string.match(id, '%d+$'), schedule.name)
end

-- Counts the times that have passed, and plans the next run: for the next time, or at once to make up for them; unless one
-- waits for its next attempt, which is the current one then.
local function plan_next(schedule, next_ms, missed, is_at_once, retried)
  if missed > 0 then redis.call('HINCRBY', schedule.key, 'sluice:count', missed) end
  redis.call('HSET', schedule.key, 'sluice:at', string.format('%.0f', next_ms))
  schedule.at = next_ms
  if retried then return make_current(schedule, retried) end
  plan(schedule, is_at_once and schedule.now_ms or next_ms)
end

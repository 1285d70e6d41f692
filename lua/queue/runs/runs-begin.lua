--[[
  runs-begin: decides whether a worker may continue with a run of a schedule that it holds. When a run begins or is
  skipped, this plans the next run. Planned times that have passed since the last run count as missed.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] active  [7] prioritized  [8] pc
        [9] failed  [10] sorted set: the schedules, by when their current runs are due  [11] the schedule: hash, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] name: the schedule's name  [3] id: the run's id
        [4] step: 'look' when the run was fetched; 'begin' when it has its slot; 'miss' when it is too late for it
        [5] next: JSON: { cron, timeZone, atMs, isInTime, nextMs, passed }, the next time of cron; or ''
  Reply [1] 0 the run does not exist; 1 the worker continues; 2 it is skipped and counted; 3 a next time is needed
        [2] 1 if it is a run of the schedule, else 0. For a cron schedule, then: [3] now, in ms since 1970
        [4] the first time that is not counted yet  [5] 1 if this is the run for that time  [6] cron  [7] time zone
]]
-- @include lib/time/now-ms
-- @include lib/runs/plan

local id, step = ARGV[3], ARGV[4]
local given = ARGV[5] ~= '' and cjson.decode(ARGV[5])
local schedule = open_schedule(KEYS, ARGV[1], ARGV[2], now_ms())
local job = schedule.jobs .. id
if redis.call('EXISTS', job) == 0 then return { 0, 0 } end
local has_begun = redis.call('HEXISTS', schedule.open, id) == 1

local function note_begin()
  redis.call('HSET', schedule.open, id, redis.call('HGET', job, 'ats') or '0')
  redis.call('HSET', schedule.key, 'sluice:ran', string.format('%.0f', schedule.now_ms), 'sluice:run', id)
end

-- Returns whether another run prevents this one, and the run that waits for its next attempt, if there is one. If
-- runs may overlap, a running run prevents no other run.
local function is_held_back()
  local is_back, waits, open = false, nil, redis.call('HKEYS', schedule.open)
  for _, other in ipairs(open) do
    local state = state_of(schedule, other)
    if state == 'ended' then
      redis.call('HDEL', schedule.open, other)
    elseif state ~= 'runs' or not schedule.may_overlap then
      is_back, waits = true, waits or state == 'waits' and other or nil
    end
  end
  return is_back, waits
end

-- A run that has begun before may continue although it is not the current run. Any other run that is not current
-- belongs to an ended schedule, or an earlier build planned it, which let runs pile up.
if id ~= schedule.run and has_begun then
  if step == 'begin' then note_begin() end
  return { 1, 1 }
elseif id ~= schedule.run then
  local is_again = was_tried(schedule, id)
  if is_again and schedule.run then return { 1, 0 } end
  if is_again then fail_run(schedule, id) else remove_run(schedule, id) end
  if schedule.run then redis.call('HINCRBY', schedule.key, 'sluice:count', 1) end
  close_schedule(schedule)
  return { schedule.run and 2 or 0, 0 }
end
local is_late, is_held, retried = step == 'miss', false, nil
if is_late and has_begun then return { 1, 1 } end
if not has_begun then is_held, retried = is_held_back() end
local is_left_out = is_late or is_held
if step == 'look' and not is_left_out then return { 1, 1 } end

local next_ms, missed = next_time(schedule, given)
if not next_ms then
  local now, at = string.format('%.0f', schedule.now_ms), string.format('%.0f', schedule.at)
  return { 3, 1, now, at, is_in_time(schedule) and 1 or 0, schedule.pattern, schedule.zone }
end
local is_owed = schedule.makes_up and redis.call('HDEL', schedule.key, 'sluice:owed') == 1
if is_left_out then
  -- This time is made up for when the run that prevents it has ended, or after the next run begins.
  remove_run(schedule, id)
  if is_in_time(schedule) then missed = missed + 1 end
  if schedule.makes_up then redis.call('HSET', schedule.key, 'sluice:owed', 1) end
  plan_next(schedule, next_ms, missed, false, retried)
else
  note_begin()
  plan_next(schedule, next_ms, missed, schedule.makes_up and (missed > 0 or is_owed))
end
close_schedule(schedule)
return { is_left_out and 2 or 1, 1 }

--[[
  runs-settle: records the outcome of a run of a schedule that had begun. A run that has ended is no longer open. A
  run that waits for its next attempt, or was recovered from a dead worker, replaces the next run as the current one.
  If the schedule has ended since the run began, the run fails permanently, so that no run of an ended schedule
  begins.

  KEYS  as in runs-begin
  ARGV  [1] prefix: the prefix of the queue's keys  [2] name: the schedule's name  [3] id: the run's id
        [4] has_begun: '1' if the worker knows that the run began as a run of this schedule
  Reply none
]]
-- @include lib/time/now-ms
-- @include lib/runs/plan

local id = ARGV[3]
local schedule = open_schedule(KEYS, ARGV[1], ARGV[2], now_ms())
local now = string.format('%.0f', schedule.now_ms)
local is_open, state = redis.call('HEXISTS', schedule.open, id) == 1, state_of(schedule, id)

-- True if the current run is only planned or waits, so that another run may replace it.
local function is_replaceable()
  return schedule.run and schedule.run ~= id and redis.call('HEXISTS', schedule.open, schedule.run) == 0
    and state_of(schedule, schedule.run) == 'waits'
end

if not is_open then
  local was_of_it = ARGV[4] == '1' or not schedule.run and was_tried(schedule, id)
  if was_of_it and state == 'waits' then fail_run(schedule, id) end
elseif state == 'ended' then
  redis.call('HDEL', schedule.open, id)
  if redis.call('HGET', schedule.key, 'sluice:run') == id then
    local outcome = redis.call('ZSCORE', schedule.failed, id) and 'failed' or 'done'
    redis.call('HSET', schedule.key, 'sluice:of', id, 'sluice:ended', now, 'sluice:outcome', outcome)
  end
  if redis.call('HEXISTS', schedule.key, 'sluice:owed') == 1 and is_replaceable() then
    redis.call('HDEL', schedule.key, 'sluice:owed')
    remove_run(schedule, schedule.run)
    plan(schedule, schedule.now_ms)
  end
elseif state == 'waits' and is_replaceable() then
  remove_run(schedule, schedule.run)
  make_current(schedule, id)
end
close_schedule(schedule)
return 0

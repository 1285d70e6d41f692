--[[
  runs-drop: removes a run of a schedule that has begun and waits for its next attempt. If it is the current run, this
  plans the next run. Planned times that have passed since the last counted time count
  as missed.

  KEYS  as in runs-begin
  ARGV  [1] prefix: the prefix of the queue's keys  [2] name: the schedule's name  [3] id: the run's id
        [4] next: JSON: the next time of a cron schedule, as in runs-begin, or ''
  Reply as of runs-begin: [1] 0 the run stays, because it does not wait for an attempt; 2 it was removed; 3 the next
        time of cron is needed
]]
-- @include lib/time/now-ms
-- @include lib/runs/plan

local id, given = ARGV[3], ARGV[4] ~= '' and cjson.decode(ARGV[4])
local schedule = open_schedule(KEYS, ARGV[1], ARGV[2], now_ms())
local lanes = schedule.lanes
if redis.call('HEXISTS', schedule.open, id) == 0 or state_of(schedule, id) ~= 'waits' then return { 0, 0 } end

local is_current, next_ms, missed = id == schedule.run, nil, nil
if is_current then
  next_ms, missed = next_time(schedule, given)
  if not next_ms then
    local now, at = string.format('%.0f', schedule.now_ms), string.format('%.0f', schedule.at)
    return { 3, 1, now, at, is_in_time(schedule) and 1 or 0, schedule.pattern, schedule.zone }
  end
end

local key = key_of(redis.call('HGET', schedule.jobs .. id, 'name') or '')
remove_run(schedule, id)
-- The run ends without an outcome: it is neither done nor a dead letter.
if redis.call('HGET', schedule.key, 'sluice:run') == id then
  redis.call('HSET', schedule.key, 'sluice:of', id, 'sluice:ended', string.format('%.0f', schedule.now_ms))
  redis.call('HDEL', schedule.key, 'sluice:outcome')
end
if is_current then
  local is_owed = schedule.makes_up and redis.call('HDEL', schedule.key, 'sluice:owed') == 1
  plan_next(schedule, next_ms, missed, schedule.makes_up and (missed > 0 or is_owed))
end
-- The run's ordered key may wait for this run to end. Makes a worker check the key now.
local is_freed = key and lanes.is_ordered and redis.call('ZADD', lanes.heads, 'XX', 'CH', schedule.now_ms, key) == 1
close_schedule(schedule)
if is_freed then announce(lanes) end
return { 2, 1 }

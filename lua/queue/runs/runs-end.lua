--[[
  runs-end: ends a schedule, and removes its pending runs. This includes runs that a worker holds but has not begun,
  and runs that wait for their next attempt. Runs that have begun continue.

  KEYS  as in runs-begin
  ARGV  [1] prefix: the prefix of the queue's keys  [2] name: the schedule's name
  Reply [1] 1 if there was such a schedule, else 0; then the ids of the removed runs
]]
-- @include lib/time/now-ms
-- @include lib/runs/schedule

local schedule = open_schedule(KEYS, ARGV[1], ARGV[2], now_ms())
local runs, removed = redis.call('HKEYS', schedule.open), {}
if schedule.run then runs[#runs + 1] = schedule.run end
for _, id in ipairs(runs) do
  local state = state_of(schedule, id)
  if state == 'waits' or state == 'held' then
    remove_run(schedule, id)
    removed[#removed + 1] = id
  end
end
redis.call('DEL', schedule.key, schedule.open)
close_schedule(schedule)
return { redis.call('ZREM', schedule.all, schedule.name), unpack(removed) }

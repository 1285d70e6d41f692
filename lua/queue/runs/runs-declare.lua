--[[
  runs-declare: stores a schedule, and replaces an earlier one with the same name. A pending run that is due stays. A
  run that is not due yet is replaced by a run for the first of the new times.

  KEYS  as in runs-begin
  ARGV  [1] prefix: the prefix of the queue's keys  [2] name: the schedule's name
        [3] fields: JSON of its fields: name, data, opts; every, or pattern, tz and sluice:cron; sluice:missed,
            sluice:overlap
        [4] cron_ms: the next time of cron in ms since 1970, computed after an earlier reply; else 0
  Reply [1] now in ms since 1970, if the next time of cron is needed; else 0
        [2] the id of the next pending run, [3] its hash, and [4] 1 if the schedule is new, else 0
]]
-- @include lib/time/now-ms
-- @include lib/runs/plan

local fields, cron_ms = cjson.decode(ARGV[3]), tonumber(ARGV[4])
local schedule = open_schedule(KEYS, ARGV[1], ARGV[2], now_ms())
local now = schedule.now_ms
if not fields.every and cron_ms <= now then return { string.format('%.0f', now) } end

local state = schedule.run and state_of(schedule, schedule.run)
local had_every, has_begun = schedule.every, schedule.run and redis.call('HEXISTS', schedule.open, schedule.run) == 1
-- This is the first write, so that a Redis with full memory rejects the whole script. After any other write, Redis
-- would accept this one and all later ones.
local is_new = redis.call('HSETNX', schedule.key, 'ic', 1)
redis.call('HDEL', schedule.key, 'every', 'offset', 'pattern', 'tz', 'data', 'opts', 'sluice:missed', 'sluice:overlap',
  'sluice:owed', 'sluice:cron')
for field, value in pairs(fields) do redis.call('HSET', schedule.key, field, value) end
schedule.every, schedule.pattern, schedule.zone = tonumber(fields.every), fields.pattern or '', fields.tz or ''
local is_same = schedule.every ~= nil and had_every == schedule.every

-- Returns the first of the new times that lies in the future.
local function first_to_come() return schedule.every and now + schedule.every or cron_ms end

local is_waiting = state == 'waits' or state == 'held'
if is_waiting and schedule.due_ms <= now then
  if not is_in_time(schedule) and not is_same then schedule.at = first_to_come() end
  if state == 'waits' and not has_begun then
    local job = schedule.jobs .. schedule.run
    local planned = cjson.decode(redis.call('HGET', job, 'opts'))
    redis.call('HSET', job, 'data', fields.data, 'opts', run_opts(schedule, schedule.run, planned))
  end
elseif is_waiting then
  local due_ms = schedule.due_ms
  remove_run(schedule, schedule.run)
  schedule.at = is_same and due_ms or schedule.every and now or cron_ms
  plan(schedule, schedule.at)
else
  -- No run waits: the schedule is new, or its run was removed.
  schedule.at = state == 'runs' and first_to_come() or schedule.every and now or cron_ms
  plan(schedule, schedule.at)
end
redis.call('HSET', schedule.key, 'sluice:at', string.format('%.0f', schedule.at))
close_schedule(schedule)
return { 0, schedule.run, redis.call('HGETALL', schedule.jobs .. schedule.run), is_new }

--[[
  jobs-move: changes the due time of jobs that wait or are delayed. It does not change jobs that run or have ended, jobs
  that wait for their parents, or the next runs of recurring jobs that have not begun.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized
        [7] the schedules, by when their next run is due: zset, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] ms: when they are due, in ms since 1970
        [3] in_ms: the ms from now until they are due; "" to use [2]  [4] only_delayed: 1 to move only delayed jobs
        [5…] ids
  Reply the due time, in ms since 1970. Then for each job: 1 it was moved; 2 it already had this due time; 0 not
        moved.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/states/unbegun
-- @include lib/lanes/due

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local schedules = KEYS[7]
lanes.prioritized = KEYS[6]
local due_ms = ARGV[3] ~= '' and lanes.now_ms + tonumber(ARGV[3]) or tonumber(ARGV[2])
local only_delayed, score = ARGV[4] == '1', string.format('%.0f', due_ms * 4096)

local function move(id)
  local job = lanes.jobs .. id
  local name, ended, opts, stored_at_ms, schedule, awaits =
    unpack(redis.call('HMGET', job, 'name', 'finishedOn', 'opts', 'timestamp', 'rjk', 'sluice:awaits'))
  if not name or ended or awaits then return 0 end
  if is_planned_run(schedules, id, schedule) and not has_begun_as_run(lanes, id, schedule) then return 0 end
  local key = key_of(name)
  local place = location_of(lanes, id, key)
  if not place then return 0 end
  if only_delayed and place ~= 'delayed' then return 2 end
  if place == 'delayed' and redis.call('ZSCORE', lanes.delayed, id) == score then return 2 end
  leave_location(lanes, id, key, place)
  redis.call('ZADD', lanes.delayed, score, id)
  local delay_ms = delay_from(due_ms, tonumber(stored_at_ms) or 0)
  -- The job gets a new position in its lane when it is due.
  redis.call('HDEL', job, 'sluiceSeq')
  redis.call('HSET', job, 'delay', string.format('%.0f', delay_ms), 'opts', with_due(opts or '{}', due_ms, delay_ms),
    'sluice:due', string.format('%.0f', due_ms))
  redis.call('XADD', lanes.events, '*', 'event', 'delayed', 'jobId', id, 'delay', string.format('%.0f', due_ms))
  return 1
end

local reply, is_changed = { string.format('%.0f', due_ms) }, false
for at = 5, #ARGV do
  reply[#reply + 1] = move(ARGV[at])
  is_changed = is_changed or reply[#reply] == 1
end
if lanes.is_changed then close_lanes(lanes) end
-- Wakes a worker, because the earliest due time may have changed.
if is_changed then announce(lanes) end
return reply

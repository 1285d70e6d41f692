--[[
  jobs-move: changes the due time of jobs that wait or are delayed. It does not change jobs that run or have ended, or
  the next runs of recurring jobs that have not begun.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized
        [7] the schedules, by when their next run is due: zset, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] ms: when they are due, in ms since 1970
        [3] in_ms: the ms from now until they are due; "" to use [2]  [4] only_delayed: 1 to move only delayed jobs
        [5…] ids
  Reply the due time, in ms since 1970. Then for each job: 1 it was moved; 2 it already had this due time; 0 not
        moved.
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/states/unbegun

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local schedules = KEYS[7]
lanes.prioritized = KEYS[6]
local due_ms = ARGV[3] ~= '' and lanes.now_ms + tonumber(ARGV[3]) or tonumber(ARGV[2])
local only_delayed, score = ARGV[4] == '1', string.format('%.0f', due_ms * 4096)

-- Returns the delay of a job, counted from when it was stored. Never returns exactly ten seconds, because that delay
-- marks a job on its way to its lane.
local function delay_from(stored_at_ms)
  local delay_ms = math.max(0, due_ms - stored_at_ms)
  return delay_ms == 10000 and 10001 or delay_ms
end

-- Also moves the deadline for the start, because it counts from the due time.
local function with_due(stored_opts, delay_ms)
  local opts = cjson.decode(stored_opts)
  opts.delay = delay_ms > 0 and delay_ms or nil
  local ours = opts.sluice
  if type(ours) == 'table' and ours.startByMs then ours.startByMs = due_ms + ours.maxWaitMs end
  return cjson.encode(opts)
end

local function move(id)
  local job = lanes.jobs .. id
  local name, ended, opts, stored_at_ms, schedule =
    unpack(redis.call('HMGET', job, 'name', 'finishedOn', 'opts', 'timestamp', 'rjk'))
  if not name or ended then return 0 end
  if is_planned_run(schedules, id, schedule) and not has_begun_as_run(lanes, id, schedule) then return 0 end
  local key = key_of(name)
  local place = location_of(lanes, id, key)
  if not place then return 0 end
  if only_delayed and place ~= 'delayed' then return 2 end
  if place == 'delayed' and redis.call('ZSCORE', lanes.delayed, id) == score then return 2 end
  leave_location(lanes, id, key, place)
  redis.call('ZADD', lanes.delayed, score, id)
  local delay_ms = delay_from(tonumber(stored_at_ms) or 0)
  -- The job gets a new position in its lane when it is due.
  redis.call('HDEL', job, 'sluiceSeq')
  redis.call('HSET', job, 'delay', string.format('%.0f', delay_ms), 'opts', with_due(opts or '{}', delay_ms),
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

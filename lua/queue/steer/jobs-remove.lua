--[[
  jobs-remove: removes jobs with all their data, in one step. Otherwise a half-removed job could keep its id and its
  dedupeId forever. Jobs in another state, and the next runs of recurring jobs, stay.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized  [7] the schedules: zset  [8] active
        [9…] the jobs that have ended, one zset of ids per outcome, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] mode: "ended" for jobs in KEYS [9] and the keys after it; "pending" for jobs that wait or are delayed; "any"
            for both, and for jobs whose lock no worker has
        [3…] ids
  Reply the ids of the removed jobs
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/states/unbegun

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.prioritized = KEYS[6]
local schedules, active, state = KEYS[7], KEYS[8], ARGV[2]

-- Removes a job from the list or set that contains it. Returns the name of this list or set; nil if the job stays in
-- it.
local function take_out(id, key, schedule)
  for at = 9, #KEYS do
    if redis.call('ZREM', KEYS[at], id) == 1 then return 'ended' end
  end
  if state == 'ended' or is_planned_run(schedules, id, schedule) then return nil end
  local place = location_of(lanes, id, key)
  if place then leave_location(lanes, id, key, place)
  elseif state == 'any' and redis.call('EXISTS', lanes.jobs .. id .. ':lock') == 0 then
    place = redis.call('LREM', active, 1, id) == 1 and 'active' or 'unknown'
  end
  return place
end

local removed, is_freed = {}, false
for at = 3, #ARGV do
  local id = ARGV[at]
  local name, schedule, dedupe_id = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'rjk', 'deid'))
  local key = name and key_of(name)
  local place = name and take_out(id, key, schedule)
  if place then
    erase(lanes, id, dedupe_id, place)
    removed[#removed + 1] = id
    -- The job's ordered key may wait for this job to end. Makes a worker check the key now.
    local is_head = key and lanes.is_ordered and redis.call('ZADD', lanes.heads, 'XX', 'CH', lanes.now_ms, key) == 1
    is_freed = is_freed or is_head
  end
end
if lanes.is_changed then close_lanes(lanes) end
if is_freed then announce(lanes) end
return removed

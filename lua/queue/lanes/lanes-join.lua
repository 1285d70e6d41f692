--[[
  lanes-join: parks jobs in the lanes of their keys. Then wakes a worker, because it may be waiting for one of these
  jobs.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] jobs: a JSON list of { id, weights, roomInMs, aside, isAnew }. The weights are those of the job's parent
            keys and of its lane; without them, the stored weights stay. If a worker returns a job because it has no
            room, roomInMs is the ms until there is room. Then aside is the parent key without room, unless it is the
            job's own key. With isAnew, a job in its lane moves behind the others of its priority.
  Reply the number of parked jobs
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/weights

local lanes = open_lanes(KEYS, ARGV[1], now_ms())

local parked = 0
for _, job in ipairs(cjson.decode(ARGV[2])) do
  local key = join(lanes, job.id, job.isAnew, job.roomInMs ~= nil)
  if key then
    parked = parked + 1
    weigh(lanes, key, job.weights)
    if job.roomInMs then block(lanes, key, job.id, lanes.now_ms + job.roomInMs, job.aside or key) end
  end
end
close_lanes(lanes)
if parked > 0 then announce(lanes) end
return parked

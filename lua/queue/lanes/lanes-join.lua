--[[
  lanes-join: parks jobs in the lanes of their keys; then wakes a worker, which may wait for just these jobs.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] jobs: jobs as a JSON list of { id, weights, roomInMs, aside, isAnew }: the weights of the heads of its path
            and of its lane from now on, none to leave them; ms until there is room again, if it comes back from a
            worker because there was none, and for what, its key unless a head of it is given; whether a job that is in
            its lane moves behind all others of its priority
  Reply how many were parked
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/weigh

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

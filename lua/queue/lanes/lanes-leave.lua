--[[
  lanes-leave: takes a job out of its lane.

  KEYS  as in lanes-join
  ARGV  [1] the prefix of the queue's keys  [2] the job
  Reply 1 if it was in its lane, else 0
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local id = ARGV[2]
local taken = 0
local key = key_of(redis.call('HGET', lanes.jobs .. id, 'name') or '')
if key and redis.call('ZREM', lanes.lane .. key, id) == 1 then
  taken = 1
  forget_job(lanes, id, key)
  if redis.call('EXISTS', lanes.lane .. key) == 0 then forget_lane(lanes, key) end
end
close_lanes(lanes)
return taken

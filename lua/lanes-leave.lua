--[[
  lanes-leave: takes a job out of its lane, or empties lanes whose jobs have been removed.

  KEYS  as in lanes-join
  ARGV  [1] the prefix of the queue's keys  [2] the job; "" to empty lanes, a thousand at a time
  Reply 1 if there was a job, or a lane, to take out; else 0
]]
-- @include lib/now-ms
-- @include lib/lanes

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local taken = 0
local function take(key)
  redis.call('UNLINK', lanes.lane .. key)
  forget_lane(lanes, key)
  taken = 1
end

if ARGV[2] ~= '' then
  local key = key_of(redis.call('HGET', ARGV[1] .. ARGV[2], 'name') or '')
  if key and redis.call('ZREM', lanes.lane .. key, ARGV[2]) == 1 then
    taken = 1
    forget_job(lanes, ARGV[2])
    if redis.call('EXISTS', lanes.lane .. key) == 0 then forget_lane(lanes, key) end
  end
  -- Nor is it on its way to a worker, who would be given no other in its place.
  redis.call('ZREM', lanes.fed, ARGV[2])
else
  for _, key in ipairs(redis.call('ZRANGE', lanes.ready, 0, 999)) do take(key) end
  for _, key in ipairs(redis.call('ZRANGE', lanes.blocked, 0, 999)) do take(key) end
  redis.call('UNLINK', lanes.shares, lanes.deadlines, lanes.fed)
  lanes.parked = 0
end
close_lanes(lanes)
return taken

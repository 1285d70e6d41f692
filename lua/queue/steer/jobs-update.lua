--[[
  jobs-update: replaces the data of a job that waits, is delayed, or has failed.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized  [7] completed, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the job  [3] json: its data as JSON
  Reply 1 the data was replaced; 0 the job does not exist; 2 it runs; 3 it is done
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/states/unbegun

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local completed, id = KEYS[7], ARGV[2]
lanes.prioritized = KEYS[6]
local job = lanes.jobs .. id
local name, ended = unpack(redis.call('HMGET', job, 'name', 'finishedOn'))
if not name then return 0 end
if ended then
  if redis.call('ZSCORE', completed, id) then return 3 end
elseif not location_of(lanes, id, key_of(name)) then
  return 2
end
redis.call('HSET', job, 'data', ARGV[3])
return 1

--[[
  flows-extend: adds parents to the final job of an open group, closes the group, or removes parents that were not
  stored.

  KEYS  as in lanes-join
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the final job  [3] action: add, close or retract
        [4…] parents: jobs that it must or must not wait for, as "<queue>:<id>"
  Reply 1 it was done, or the group was closed before; 0 the group is closed, so nothing was added; 2 there is no such
        group
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/weights
-- @include lib/lanes/states/unbegun
-- @include lib/flows/hold
-- @include lib/flows/release

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.flows = flow_names(ARGV[1])
local id, action = ARGV[2], ARGV[3]
local job = lanes.jobs .. id
local parents, open, awaits, count = unpack(redis.call('HMGET', job, 'sluice:parents', 'sluice:open', 'sluice:awaits', 'sluice:count'))
if not parents then return 2 end
if not open and action ~= 'retract' then return action == 'close' and 1 or 0 end
if action ~= 'add' then
  if action == 'close' then redis.call('HDEL', job, 'sluice:open') end
  for at = 4, #ARGV do redis.call('ZREM', lanes.flows.awaited .. id, ARGV[at]) end
  if (not open or action == 'close') and awaits and redis.call('EXISTS', lanes.flows.awaited .. id) == 0 then start(lanes, id, false) end
  if lanes.is_waiting then announce(lanes) end
  return 1
end
for at = 4, #ARGV do
  if redis.call('HEXISTS', lanes.flows.outcomes .. id, ARGV[at]) == 0 then
    redis.call('ZADD', lanes.flows.awaited .. id, 'NX', count + at - 3, ARGV[at])
  end
end
redis.call('HSET', job, 'sluice:count', count + #ARGV - 3, 'sluice:extended', string.format('%.0f', lanes.now_ms))
return 1

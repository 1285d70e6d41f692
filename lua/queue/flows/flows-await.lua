--[[
  flows-await: registers children of jobs of this queue. Registers nothing for a job that is not stored.

  KEYS  [1] the state of the lanes: hash  [2] id, BullMQ's: the latest number that a job got as its id
  ARGV  [1] prefix: the prefix of the queue's keys
        [2…] id, child: a job of this queue, and the job that waits for it, as "<queue>:<id>"
  Reply for each of them: 1 registered; 0 the job is no longer stored; 2 it was cancelled in the last ten minutes; 3 no
        job has had this id yet
]]
-- @include lib/time/now-ms
-- @include lib/flows/flow-keys
-- @include lib/flows/children

local lanes = { state = KEYS[1], jobs = ARGV[1], now_ms = now_ms() }
local last_id = tonumber(redis.call('GET', KEYS[2]) or 0)

local function state_of(id)
  if redis.call('HEXISTS', lanes.jobs .. id, 'name') == 1 then return 1 end
  if string.match(id, '^%d+$') and tonumber(id) > last_id then return 3 end
  return redis.call('EXISTS', lanes.jobs .. 'cancelled:' .. id) == 1 and 2 or 0
end

local reply, states = {}, {}
for at = 2, #ARGV, 2 do
  local id = ARGV[at]
  states[id] = states[id] or state_of(id)
  if states[id] == 1 then add_child(lanes, id, ARGV[at + 1]) end
  reply[#reply + 1] = states[id]
end
return reply

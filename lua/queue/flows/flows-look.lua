--[[
  flows-look: reads how jobs of this queue ended, and which children wait for them. Changes nothing.

  KEYS  [1] completed  [2] failed, BullMQ's: zsets of ids
  ARGV  [1] prefix: the prefix of the queue's keys  [2] most: the most children of each job
        [3] longest: the most characters of a result; a longer one is left out
        [4…] id, from: a job, and how many of its children to leave out
  Reply for each job: its state; its result as JSON, or the reason for its failure; and a list of its children. The
        state is 0 it has not ended; 1 done; 2 failed; 3 it was removed although children wait for it; 4 it is not stored,
        and no child waits for it; 5 done, and its result is too long.
]]
-- @include lib/flows/flow-keys

local completed, failed, prefix, most, longest = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local flows = flow_names(prefix)

local function end_of(id, has_children)
  local name, ended, result, reason =
    unpack(redis.call('HMGET', prefix .. id, 'name', 'finishedOn', 'returnvalue', 'failedReason'))
  if not name then return has_children and 3 or 4, '' end
  if not ended then return 0, '' end
  if redis.call('ZSCORE', completed, id) then
    if result and #result > longest then return 5, '' end
    return 1, result or ''
  end
  if redis.call('ZSCORE', failed, id) then return 2, reason or '' end
  return 0, ''
end

local reply = {}
for at = 4, #ARGV, 2 do
  local id, from = ARGV[at], tonumber(ARGV[at + 1])
  local children = redis.call('ZRANGE', flows.children .. id, from, from + most - 1)
  reply[#reply + 1], reply[#reply + 2] = end_of(id, #children > 0)
  reply[#reply + 1] = children
end
return reply

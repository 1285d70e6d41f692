--[[
  flows-forget: removes children that were notified of how their parents ended. Those of a dead letter are kept for a
  while, so that a replay resumes them.

  KEYS  none but those of the jobs; [1] the state of the lanes: hash
  ARGV  [1] prefix: the prefix of the queue's keys  [2] kept_ms: ms for which the children are kept; "" to remove them
        [3…] id, child: a job of this queue, and its child, as "<queue>:<id>"
  Reply none
]]
-- @include lib/flows/flow-keys

local flows, kept_ms = flow_names(ARGV[1]), ARGV[2]
for at = 3, #ARGV, 2 do
  local children = flows.children .. ARGV[at]
  if kept_ms ~= '' then redis.call('PEXPIRE', children, kept_ms) else redis.call('ZREM', children, ARGV[at + 1]) end
end

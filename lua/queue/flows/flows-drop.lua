--[[
  flows-drop: removes what only jobs with parents have, after BullMQ's own scripts have removed the jobs. Keeps it for
  jobs that were enqueued again with the same id in the meantime.

  KEYS  none but those of the jobs; [1] the children that wait: zset
  ARGV  [1] prefix: the prefix of the queue's keys  [2…] ids: the removed jobs
  Reply none
]]
-- @include lib/flows/flow-keys

local prefix = ARGV[1]
local flows = flow_names(prefix)
for at = 2, #ARGV do
  if redis.call('EXISTS', prefix .. ARGV[at]) == 0 then forget_parents(flows, ARGV[at]) end
end

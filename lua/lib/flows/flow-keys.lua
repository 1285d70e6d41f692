-- Returns the Redis keys of the flows of a queue. A child is a job that waits for its parents. Jobs are named
-- "<queue>:<id>". Three of the keys end with the id of a job.
-- The zset `children` has the children that wait for the job, in the order in which they were registered.
-- The zset `awaited` has the parents that the job waits for, in order.
-- The hash `outcomes` has the outcomes of its other parents.
-- The zset `waiting` has all children of the queue that wait, by when they are checked again.
local function flow_names(prefix)
  local own = prefix .. 'flow:'
  return { children = own .. 'children:', awaited = own .. 'awaited:', outcomes = own .. 'outcomes:', waiting = own .. 'waiting' }
end

-- Removes what only a job with parents has.
local function forget_parents(flows, id)
  redis.call('UNLINK', flows.awaited .. id, flows.outcomes .. id)
  redis.call('ZREM', flows.waiting, id)
end

-- Removes the children of a dead letter that is removed. They were notified of its failure, and are listed only so that
-- a replay of the dead letter resumes them. Children that were not notified stay listed.
local function forget_children(flows, id)
  if redis.call('PTTL', flows.children .. id) > 0 then redis.call('UNLINK', flows.children .. id) end
end

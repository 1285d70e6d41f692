-- The field of a cancelled job. No worker begins such a job.
local CANCELLED = 'sluice:cancelled'

-- Notifies those waiting for a job's end that it was cancelled before it began. The event that it was removed follows.
local function publish_cancelled(events, mark, id)
  redis.call('SET', mark, 1, 'PX', 600000)
  redis.call('XADD', events, '*', 'event', 'sluice-cancelled', 'jobId', id)
end

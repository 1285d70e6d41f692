-- The field of a job that was cancelled: no worker begins it.
local CANCELLED = 'sluice:cancelled'

-- Tells those who wait for a job's end that it was cancelled before it began: the event that it is removed follows.
local function tell_cancelled(events, mark, id)
  redis.call('SET', mark, 1, 'PX', 600000)
  redis.call('XADD', events, '*', 'event', 'sluice-cancelled', 'jobId', id)
end

-- A cancelled job has this field. No worker begins a job that has it.
local CANCELLED = 'sluice:cancelled'

-- Notifies processes that await a job that the job was cancelled before it began. The event about its removal
-- follows.
local function publish_cancelled(events, mark, id)
  redis.call('SET', mark, 1, 'PX', 600000)
  redis.call('XADD', events, '*', 'event', 'sluice-cancelled', 'jobId', id)
end

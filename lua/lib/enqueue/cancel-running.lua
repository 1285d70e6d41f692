-- @include lib/lanes/states/cancelled
-- Cancels the running job that a new job replaces, as jobs-cancel does.
local function cancel_running(lanes, what, id)
  -- The new job, or the job whose data it has replaced, runs after the running job.
  local running = what == 'after' and id or what == 'replace' and redis.call('HGET', lanes.jobs .. id, 'sluiceAfter')
  if not running or not is_unended(lanes, running) then return end
  local job, locks = lanes.jobs .. running, lanes.jobs .. 'lanes:cancelled'
  if redis.call('HSET', job, CANCELLED, 1) == 0 then return end
  local token = redis.call('GET', job .. ':lock')
  if not token then return end
  redis.call('ZREMRANGEBYSCORE', locks, '-inf', lanes.now_ms - 3600000)
  redis.call('ZADD', locks, lanes.now_ms, token .. ' ' .. running)
  redis.call('PEXPIRE', locks, 3600000)
  redis.call('HINCRBY', lanes.state, 'orders', 1)
end

-- @include lib/lanes/states/cancelled
-- Lets a job that waits for its retry start now, because it has new data. Its earlier attempts still count.
local function retry_now(lanes, id)
  local job, score = lanes.jobs .. id, redis.call('ZSCORE', lanes.delayed, id)
  local name, attempts = unpack(redis.call('HMGET', job, 'name', 'atm'))
  if not score or tonumber(score) / 4096 <= lanes.now_ms or (tonumber(attempts) or 0) == 0 then return end
  local key = key_of(name)
  -- A job in its lane is due already.
  if key and redis.call('ZSCORE', lanes.lane .. key, id) then return end
  redis.call('HSET', job, 'sluice:due', string.format('%.0f', lanes.now_ms))
  delay_until(lanes, id, lanes.now_ms)
end

-- Cancels the running job that a new job replaces, as jobs-cancel does. A job that waits for its retry does not run.
local function cancel_running(lanes, what, id)
  if what == 'replace' then retry_now(lanes, id) end
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

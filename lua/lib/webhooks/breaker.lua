-- Returns the ms until the circuit breaker of an endpoint allows an attempt, or 0. While the breaker is open, one
-- attempt at a time tests the endpoint. The other attempts wait a little longer than the time limit of that attempt,
-- which the endpoint's record may set.
local PROBE_SLACK_MS = 5000

local function breaker_wait(health, record, now, timeout_ms)
  local opened, probed = unpack(redis.call('HMGET', health, 'open_until', 'probe_until'))
  if not opened then return 0 end
  local wait_ms = math.max(0, tonumber(opened) - now, tonumber(probed or 0) - now)
  if wait_ms > 0 then return wait_ms end
  local limit_ms = tonumber(string.match(record, '"timeoutMs":(%d+)') or timeout_ms)
  redis.call('HSET', health, 'probe_until', now + limit_ms + PROBE_SLACK_MS)
  return 0
end

-- For how many ms the breaker of an endpoint keeps an attempt back; 0 if it may begin. Of one that is open, one attempt at a
-- time tries whether the endpoint is back, and the others wait somewhat longer than that may take: the endpoint's record may
-- have a time limit of its own.
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

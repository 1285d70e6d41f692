-- For how many ms the breaker of an endpoint keeps an attempt back; 0 if it may begin. Of one that is open, one attempt at a
-- time tries whether the endpoint is back, for `probe_ms` at most.
local function breaker_wait(health, now, probe_ms)
  local opened, probed = unpack(redis.call('HMGET', health, 'open_until', 'probe_until'))
  if not opened then return 0 end
  local wait_ms = math.max(0, tonumber(opened) - now, tonumber(probed or 0) - now)
  if wait_ms == 0 then redis.call('HSET', health, 'probe_until', now + probe_ms) end
  return wait_ms
end

--[[
  attempts-begin: what one attempt needs, and whether it may begin. Of an endpoint whose breaker is open, one attempt at a
  time tries whether it is back.

  KEYS  [1] endpoints: hash of the tenant's records  [2] disabled: hash  [3] message: hash  [4] health: hash
  ARGV  [1] the endpoint  [2] for how many ms a try of a broken endpoint keeps others back; 0 does not ask the breaker
  Reply record; why it is disabled; type; body; what became of the message there; ms to wait for the breaker, or 0;
        the ms since 1970 at which the message came; now. What is not there is empty.
]]
-- @include lib/now-ms
local id, probe_ms = ARGV[1], tonumber(ARGV[2])
local record, disabled = redis.call('HGET', KEYS[1], id), redis.call('HGET', KEYS[2], id)
local at, type, body, state = unpack(redis.call('HMGET', KEYS[3], 'at', 'type', 'body', 'to:' .. id))
local now, wait_ms = now_ms(), 0
if probe_ms > 0 and record and not disabled then
  local opened, probed = unpack(redis.call('HMGET', KEYS[4], 'open_until', 'probe_until'))
  if opened then
    wait_ms = math.max(0, tonumber(opened) - now, tonumber(probed or 0) - now)
    if wait_ms == 0 then redis.call('HSET', KEYS[4], 'probe_until', now + probe_ms) end
  end
end
return { record or '', disabled or '', type or '', body or '', state or '', wait_ms, tonumber(at or 0), now }

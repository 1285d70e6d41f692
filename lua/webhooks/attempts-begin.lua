--[[
  attempts-begin: what attempts need, and whether they may begin. Of an endpoint whose breaker is open, one attempt at a
  time tries whether it is back.

  KEYS  of each attempt: endpoints, hash of the tenant's records; disabled, hash; message, hash; health, hash
  ARGV  of each attempt: the endpoint; how many ms an attempt may take where the endpoint says nothing else, or 0, which does
        not ask the breaker
  Reply of each attempt: record; why it is disabled; type; body; what became of the message there; ms to wait for the
        breaker, or 0; the ms since 1970 at which the message came; now; the copy of the message. What is not there is
        empty.
]]
-- @include lib/now-ms
-- @include lib/webhooks/breaker
local KEYS_EACH, ARGS_EACH = 4, 2
local now, replies = now_ms(), {}

local function begin(endpoints, disabled_ids, message, health, id, timeout_ms)
  local record, disabled = redis.call('HGET', endpoints, id), redis.call('HGET', disabled_ids, id)
  local at, type, body, state, copy = unpack(
    redis.call('HMGET', message, 'at', 'type', 'body', 'to:' .. id, 'copy'))
  local wait_ms = 0
  if timeout_ms > 0 and record and not disabled then wait_ms = breaker_wait(health, record, now, timeout_ms) end
  return { record or '', disabled or '', type or '', body or '', state or '', wait_ms, tonumber(at or 0), now, copy or '' }
end

for at = 1, #KEYS / KEYS_EACH do
  local key, arg = (at - 1) * KEYS_EACH, (at - 1) * ARGS_EACH
  local endpoints, disabled, message, health = unpack(KEYS, key + 1, key + KEYS_EACH)
  replies[at] = begin(endpoints, disabled, message, health, ARGV[arg + 1], tonumber(ARGV[arg + 2]))
end
return replies

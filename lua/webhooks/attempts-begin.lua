--[[
  attempts-begin: what attempts need, and whether they may begin. Of an endpoint whose breaker is open, one attempt at a
  time tries whether it is back. A message whose endpoint was removed since it was sent is marked "removed" there.

  KEYS  of each attempt: endpoints, hash of the tenant's records; disabled, hash; message, hash; health, hash
  ARGV  of each attempt: the endpoint; how many ms an attempt may take where the endpoint says nothing else, or 0, which does
        not ask the breaker; a part of the record of the endpoint that was meant, or empty; the copy of the message that
        is meant, or empty
  Reply of each attempt: record; why it is disabled; type; body; what became of the message there; ms to wait for the
        breaker, or 0; the ms since 1970 at which the message came; now; the copy of the message. What is not there is
        empty.
]]
-- @include lib/now-ms
-- @include lib/webhooks/breaker
local KEYS_EACH, ARGS_EACH = 4, 4
local now, replies = now_ms(), {}

local function begin(endpoints, disabled_ids, message, health, id, timeout_ms, born, meant)
  local record, disabled = redis.call('HGET', endpoints, id), redis.call('HGET', disabled_ids, id)
  local at, type, body, state, copy = unpack(
    redis.call('HMGET', message, 'at', 'type', 'body', 'to:' .. id, 'copy'))
  local is_removed = not record or not string.find(record, born, 1, true)
  if is_removed and at and state ~= 'delivered' and state ~= 'failed' and (meant == '' or meant == copy) then
    redis.call('HSET', message, 'to:' .. id, 'removed')
  end
  local wait_ms = 0
  if timeout_ms > 0 and not is_removed and not disabled then wait_ms = breaker_wait(health, record, now, timeout_ms) end
  return { record or '', disabled or '', type or '', body or '', state or '', wait_ms, tonumber(at or 0), now, copy or '' }
end

for at = 1, #KEYS / KEYS_EACH do
  local key, arg = (at - 1) * KEYS_EACH, (at - 1) * ARGS_EACH
  local endpoints, disabled, message, health = unpack(KEYS, key + 1, key + KEYS_EACH)
  replies[at] = begin(endpoints, disabled, message, health, ARGV[arg + 1], tonumber(ARGV[arg + 2]),
    ARGV[arg + 3], ARGV[arg + 4])
end
return replies

--[[
  attempts-begin: returns the data for some attempts, and whether they may begin. While the circuit breaker of an
  endpoint is open, only one attempt at a time tests the endpoint. If an endpoint was removed after a message was sent
  to it, the message is marked "removed" there.

  KEYS  of each attempt: [1] endpoints: hash of the tenant's records  [2] disabled: hash  [3] message: hash
        [4] health: hash
  ARGV  [1…] endpoint, timeout_ms, born, copy: four values per attempt. The endpoint's own time limit replaces
            `timeout_ms`. A `timeout_ms` of 0 bypasses the circuit breaker. `born` is the part of the record that
            identifies the endpoint; it can be ''.
  Reply for each attempt: the record. The reason if the endpoint is disabled. Type and body of the message. Its state at
        the endpoint. Ms until the circuit breaker allows an attempt, or 0. Ms since 1970 of its arrival. Ms since 1970
        now. The copy of the message. Missing values are ''.
]]
-- @include lib/time/now-ms
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

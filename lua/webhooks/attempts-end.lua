--[[
  attempts-end: records the results of attempts in the logs of the message and the endpoint.

  KEYS  of each attempt: [1] message: hash  [2] attempts: hash of the message's, by number  [3] log: zset of the endpoint's
        attempts, by ms since 1970  [4] failed: zset of its failed messages  [5] health: hash  [6] disabled: hash
        [7] versions: hash  [8] endpoints: hash
  ARGV  [1] keep_ms: ms for which the logs are kept  [2] most: the most attempts kept per message and per endpoint
        [3] disable_after_ms: ms of failures that disable an endpoint  [4] failures: failures that open the circuit breaker
        [5] open_ms: ms for which it opens at first  [6] most_open_ms: the most ms for which it opens
        [7…] tenant, endpoint, message, entry, state, health, slow_ms, disable, changed_at_ms, copy
            Each attempt has all of these values. The logs get `entry`. The message gets the state `state`. The value of
            `health` is "ok", "bad" or "same". The endpoint asks for a pause of `slow_ms`. A reason in `disable` disables
            the endpoint. `changed_at_ms` is the part of the endpoint's record that each change of the endpoint replaces.
  Reply for each attempt: ms for which the endpoint pauses; the event that occurred, or ''; ms since 1970 of the first
        failure, or 0. The event is "gone" if the endpoint was removed.
]]
-- @include lib/time/now-ms
-- @include lib/webhooks/note-change
-- @include lib/webhooks/health
local KEYS_EACH, ARGS_OF_ALL, ARGS_EACH = 8, 6, 10
local keep_ms, most, now, replies = tonumber(ARGV[1]), tonumber(ARGV[2]), now_ms(), {}
local rules = { ttl = keep_ms, disable_after = tonumber(ARGV[3]), failures = tonumber(ARGV[4]),
  open_ms = tonumber(ARGV[5]), most_open_ms = tonumber(ARGV[6]) }

local function log_attempt(message, attempts, log, failed, endpoint, id, entry, state, copy)
  local left = redis.call('PTTL', message)
  -- Stops if the message has expired, or if a newer message has its id.
  if left <= 0 or (redis.call('HGET', message, 'copy') or '') ~= copy then return end
  local count = redis.call('HINCRBY', message, 'attempts', 1)
  redis.call('HSET', attempts, count, entry)
  if count > most then redis.call('HDEL', attempts, count - most) end
  redis.call('PEXPIRE', attempts, left)
  redis.call('HSET', message, 'to:' .. endpoint, state)
  redis.call('ZADD', log, now, id .. ' ' .. count)
  redis.call('ZREMRANGEBYSCORE', log, '-inf', now - keep_ms)
  redis.call('ZREMRANGEBYRANK', log, 0, -most - 1)
  redis.call('PEXPIRE', log, keep_ms)
  if state == 'failed' then
    -- Makes each time distinct, because failed messages are recovered in the order of these times.
    local last = tonumber(redis.call('ZREVRANGE', failed, 0, 0, 'WITHSCORES')[2]) or 0
    redis.call('ZADD', failed, math.max(now, last + 1), id)
    redis.call('ZREMRANGEBYSCORE', failed, '-inf', now - keep_ms)
    redis.call('PEXPIRE', failed, keep_ms)
  elseif state == 'delivered' then
    redis.call('ZREM', failed, id)
  end
end

local function note_endpoint(health, disabled, versions, tenant, endpoint, seen, slow_ms, disable)
  local wait_ms, event, since = note_health(health, seen, rules, now)
  wait_ms = math.max(wait_ms, slow_ms)
  if wait_ms > 0 then
    -- A shorter pause does not replace a longer one.
    local left_until = math.max(now + wait_ms, tonumber(redis.call('HGET', health, 'left_until') or 0))
    redis.call('HSET', health, 'left_until', string.format('%.0f', left_until))
    redis.call('PEXPIRE', health, math.max(rules.ttl, 2 * rules.disable_after))
    wait_ms = left_until - now
  end
  local why = disable ~= '' and disable or (event == 'disabled' and 'failing') or nil
  if why and redis.call('HSETNX', disabled, endpoint, now .. ' ' .. why) == 1 then
    note_change(versions, tenant)
    event = 'disabled'
  elseif why then
    event = ''
  end
  return { wait_ms, event, since }
end

for at = 1, #KEYS / KEYS_EACH do
  local key, arg = (at - 1) * KEYS_EACH, ARGS_OF_ALL + (at - 1) * ARGS_EACH
  local message, attempts, log, failed, health, disabled, versions, endpoints = unpack(KEYS, key + 1, key + KEYS_EACH)
  local tenant, endpoint, id, entry, state, seen, slow_ms, disable, changed, copy = unpack(ARGV, arg + 1, arg + ARGS_EACH)
  log_attempt(message, attempts, log, failed, endpoint, id, entry, state, copy)
  local record = redis.call('HGET', endpoints, endpoint)
  -- Ignores the result for the endpoint's health if the endpoint has changed since the attempt began.
  if not record or not string.find(record, changed, 1, true) then replies[at] = { 0, record and '' or 'gone', 0 } else
    replies[at] = note_endpoint(health, disabled, versions, tenant, endpoint, seen, tonumber(slow_ms), disable)
  end
end
return replies

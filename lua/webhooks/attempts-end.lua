--[[
  attempts-end: records what attempts came to, in the log, of the message and of its endpoint.

  KEYS  of each attempt: message, hash; attempts, hash of the message's, by their numbers; log, zset of the endpoint's, by
        ms since 1970; failed, zset of the messages that failed there for good; health, hash; disabled, hash; versions,
        hash; endpoints, hash
  ARGV  of all: [1] for how many ms all that is kept  [2] most attempts that are kept of the message, and of the endpoint
        [3] ms of failing until an endpoint is disabled  [4] failures in a row that open the breaker
        [5] ms for which it opens first  [6] and at most
        of each attempt: the tenant; the endpoint; the message; the attempt as text; what became of the message there;
        "ok", "bad" or "same", what it says of the endpoint's health; ms for which the endpoint asks to be left alone;
        why it is disabled at once, empty if it is not; a part of the endpoint's record that each change of it changes;
        the copy of the message that was sent
  Reply of each attempt: ms for which the endpoint's jobs are to wait; the event that this is, or empty, or "gone" if the
        endpoint was removed; ms since when it fails, 0 if it does not
]]
-- @include lib/now-ms
-- @include lib/webhooks/changed
-- @include lib/webhooks/health
local KEYS_EACH, ARGS_OF_ALL, ARGS_EACH = 8, 6, 10
local keep_ms, most, now, replies = tonumber(ARGV[1]), tonumber(ARGV[2]), now_ms(), {}
local rules = { ttl = keep_ms, disable_after = tonumber(ARGV[3]), failures = tonumber(ARGV[4]),
  open_ms = tonumber(ARGV[5]), most_open_ms = tonumber(ARGV[6]) }

local function log_attempt(message, attempts, log, failed, endpoint, id, entry, state, copy)
  local left = redis.call('PTTL', message)
  -- Forgotten, or another message of the same id by now.
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
    -- Each at a time of its own: they are recovered in this order.
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
    -- What asks for less does not end an earlier wait.
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
  -- What was sent before a change says nothing of the endpoint as it is.
  if not record or not string.find(record, changed, 1, true) then replies[at] = { 0, record and '' or 'gone', 0 } else
    replies[at] = note_endpoint(health, disabled, versions, tenant, endpoint, seen, tonumber(slow_ms), disable)
  end
end
return replies

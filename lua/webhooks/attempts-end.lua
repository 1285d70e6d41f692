--[[
  attempts-end: records what an attempt came to, in the log, of the message and of its endpoint.

  KEYS  [1] message: hash  [2] attempts: hash of the message's, by their numbers  [3] log: zset of the endpoint's, by ms since 1970
        [4] failed: zset of the messages that failed there for good  [5] health: hash  [6] disabled: hash
        [7] versions: hash  [8] endpoints: hash
  ARGV  [1] the tenant  [2] the endpoint  [3] the message  [4] the attempt as text  [5] what became of the message there
        [6] for how many ms all that is kept  [7] most attempts that are kept of the message, and of the endpoint
        [8] "ok", "bad" or "same": what the attempt says of the endpoint's health  [9] ms of failing until it is disabled
        [10] failures in a row that open the breaker  [11] ms for which it opens first  [12] and at most
        [13] ms for which the endpoint asks to be left alone  [14] why it is disabled at once; empty if it is not
  Reply ms for which its jobs are to wait; the event that this is, or empty; ms since when it fails, 0 if it does not
]]
-- @include lib/now-ms
-- @include lib/webhooks/changed
-- @include lib/webhooks/health
local tenant, endpoint, id, entry, state = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local keep_ms, most, now = tonumber(ARGV[6]), tonumber(ARGV[7]), now_ms()
local message, attempts, log, failed, health = unpack(KEYS)
local left = redis.call('PTTL', message)
if left > 0 then
  local count = redis.call('HINCRBY', message, 'attempts', 1)
  redis.call('HSET', attempts, count, entry)
  redis.call('HDEL', attempts, count - most)
  redis.call('PEXPIRE', attempts, left)
  redis.call('HSET', message, 'to:' .. endpoint, state)
  redis.call('ZADD', log, now, id .. ' ' .. count)
  redis.call('ZREMRANGEBYSCORE', log, '-inf', now - keep_ms)
  redis.call('ZREMRANGEBYRANK', log, 0, -most - 1)
  redis.call('PEXPIRE', log, keep_ms)
  if state == 'failed' then
    redis.call('ZADD', failed, now, id)
    redis.call('ZREMRANGEBYSCORE', failed, '-inf', now - keep_ms)
    redis.call('PEXPIRE', failed, keep_ms)
  elseif state == 'delivered' then
    redis.call('ZREM', failed, id)
  end
end
if redis.call('HEXISTS', KEYS[8], endpoint) == 0 then return { 0, '', 0 } end

local rules = { ttl = keep_ms, disable_after = tonumber(ARGV[9]), failures = tonumber(ARGV[10]),
  open_ms = tonumber(ARGV[11]), most_open_ms = tonumber(ARGV[12]) }
local wait_ms, event, since = note_health(health, ARGV[8], rules, now)
wait_ms = math.max(wait_ms, tonumber(ARGV[13]))
if wait_ms > 0 then
  -- What asks for less does not end an earlier wait.
  local left_until = math.max(now + wait_ms, tonumber(redis.call('HGET', health, 'left_until') or 0))
  redis.call('HSET', health, 'left_until', string.format('%.0f', left_until))
  redis.call('PEXPIRE', health, math.max(rules.ttl, 2 * rules.disable_after))
  wait_ms = left_until - now
end
local why = ARGV[14] ~= '' and ARGV[14] or (event == 'disabled' and 'failing') or nil
if why and redis.call('HSETNX', KEYS[6], endpoint, now .. ' ' .. why) == 1 then
  note_change(KEYS[7], tenant)
  event = 'disabled'
elseif why then
  event = ''
end
return { wait_ms, event, since }

--[[
  messages-store: stores a message, unless its tenant has one of this id.

  KEYS  [1] message: hash, expires  [2] messages: zset of the tenant's ids, by the ms since 1970 at which they came
        [3] ends: zset of the same ids, by the ms since 1970 until which they are kept
        [4…] line and state, as in lib/webhooks/line, of each ordered endpoint
  ARGV  [1] id  [2] type  [3] body  [4] the endpoints that it goes to, separated by spaces  [5] for how many ms it is kept
        [6] those of the endpoints that are ordered, separated by spaces
  Reply the ms since 1970 at which it came; 1 if it is new; its endpoints; 1 if its jobs were all stored; the ordered ones
]]
-- @include lib/now-ms
-- @include lib/webhooks/line
local message, messages, ends, id, keep_ms = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[5])
local ordered = ARGV[6]
local at, endpoints, isSent, lines = unpack(redis.call('HMGET', message, 'at', 'endpoints', 'sent', 'ordered'))
if at then return { tonumber(at), 0, endpoints, isSent and 1 or 0, lines or '' } end

local now = now_ms()
if ordered ~= '' then
  -- Later than all before it, so that its place among them is known.
  now = math.max(now, (tonumber(redis.call('ZREVRANGE', messages, 0, 0, 'WITHSCORES')[2]) or 0) + 1)
  redis.call('HSET', message, 'ordered', ordered)
  for at = 4, #KEYS, 2 do join_line(KEYS[at], KEYS[at + 1], { 'send ' .. id }) end
end
redis.call('HSET', message, 'at', now, 'type', ARGV[2], 'body', ARGV[3], 'endpoints', ARGV[4])
redis.call('PEXPIRE', message, keep_ms)
redis.call('ZADD', messages, now, id)
redis.call('ZADD', ends, now + keep_ms, id)
-- Each is listed for as long as it is there.
local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)
if #gone > 0 then
  redis.call('ZREM', messages, unpack(gone))
  redis.call('ZREM', ends, unpack(gone))
end
if redis.call('PTTL', messages) < keep_ms then
  redis.call('PEXPIRE', messages, keep_ms)
  redis.call('PEXPIRE', ends, keep_ms)
end
return { now, 1, ARGV[4], 0, ordered }

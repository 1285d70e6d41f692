--[[
  messages-store: stores a message, unless its tenant has one of this id.

  KEYS  [1] message: hash, expires  [2] messages: zset of the tenant's ids, by the ms since 1970 at which they came
  ARGV  [1] id  [2] type  [3] body  [4] the endpoints that it goes to, separated by spaces  [5] for how many ms it is kept
        [6] for how many ms ids are kept
  Reply the ms since 1970 at which it came; 1 if it is new; its endpoints; 1 if its jobs were all stored
]]
-- @include lib/now-ms
local message, messages, id = KEYS[1], KEYS[2], ARGV[1]
local at, endpoints, isSent = unpack(redis.call('HMGET', message, 'at', 'endpoints', 'sent'))
if at then return { tonumber(at), 0, endpoints, isSent and 1 or 0 } end

local now = now_ms()
redis.call('HSET', message, 'at', now, 'type', ARGV[2], 'body', ARGV[3], 'endpoints', ARGV[4])
redis.call('PEXPIRE', message, ARGV[5])
redis.call('ZADD', messages, now, id)
redis.call('ZREMRANGEBYSCORE', messages, '-inf', now - tonumber(ARGV[6]))
redis.call('PEXPIRE', messages, ARGV[6])
return { now, 1, ARGV[4], 0 }

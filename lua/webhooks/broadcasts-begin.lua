--[[
  broadcasts-begin: stores a broadcast, unless one with this id exists.

  KEYS  [1] broadcast: hash, expires
  ARGV  [1] type  [2] body  [3] named: the receiving tenants, separated by spaces, or "*" for all
        [4] keep_ms: ms for which it is kept
  Reply 1 if it is new. Its type, body and tenants. Then its progress, as in the reply of broadcasts-advance.
]]
local broadcast, keep_ms = KEYS[1], tonumber(ARGV[4])
local is_new = redis.call('HSETNX', broadcast, 'type', ARGV[1])
if is_new == 1 then
  redis.call('HSET', broadcast, 'body', ARGV[2], 'named', ARGV[3], 'cursor', '', 'done', 0, 'tenants', 0, 'endpoints', 0)
  redis.call('PEXPIRE', broadcast, keep_ms)
end
return { is_new, unpack(redis.call('HMGET', broadcast, 'type', 'body', 'named', 'cursor', 'done', 'tenants', 'endpoints')) }

--[[
  broadcasts-begin: stores a broadcast, unless there is one of this id.

  KEYS  [1] broadcast: hash, expires
  ARGV  [1] type  [2] body  [3] the tenants that it names, separated by spaces; "*" for all
        [4] for how many ms it is known
  Reply 1 if it is new; type; body; the tenants that it names; the tenant up to which it is done; 1 if it is done; how many
        tenants get it, and endpoints
]]
local broadcast, keep_ms = KEYS[1], tonumber(ARGV[4])
local is_new = redis.call('HSETNX', broadcast, 'type', ARGV[1])
if is_new == 1 then
  redis.call('HSET', broadcast, 'body', ARGV[2], 'named', ARGV[3], 'cursor', '', 'done', 0, 'tenants', 0, 'endpoints', 0)
  redis.call('PEXPIRE', broadcast, keep_ms)
end
return { is_new, unpack(redis.call('HMGET', broadcast, 'type', 'body', 'named', 'cursor', 'done', 'tenants', 'endpoints')) }

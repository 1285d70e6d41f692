--[[
  broadcasts-advance: notes how far a broadcast is, unless somebody else has noted more since. A broadcast that is done keeps
  its type and its counts, and no data or names.

  KEYS  [1] broadcast: hash, expires
  ARGV  [1] the tenant up to which it was done, as it was read  [2] and is now  [3] 1 if it is done
        [4] how many more tenants get it  [5] and endpoints
  Reply the tenant up to which it is done; 1 if it is done; how many tenants get it, and endpoints; empty if it is not known
]]
local broadcast, from, to, done, tenants, endpoints = KEYS[1], unpack(ARGV)
local cursor, was_done = unpack(redis.call('HMGET', broadcast, 'cursor', 'done'))
if not cursor then return {} end
if cursor == from and was_done == '0' then
  redis.call('HSET', broadcast, 'cursor', to, 'done', done)
  redis.call('HINCRBY', broadcast, 'tenants', tenants)
  redis.call('HINCRBY', broadcast, 'endpoints', endpoints)
  if done == '1' then redis.call('HSET', broadcast, 'body', '', 'named', '', 'cursor', '') end
end
return redis.call('HMGET', broadcast, 'cursor', 'done', 'tenants', 'endpoints')

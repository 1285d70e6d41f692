--[[
  broadcasts-advance: notes the progress of a broadcast, unless another process has noted more. A finished broadcast keeps
  its type and its counts, but no data or names.

  KEYS  [1] broadcast: hash, expires
  ARGV  [1] from: the last tenant that had it, as it was read  [2] to: the last tenant that has it now
        [3] is_done: 1 if it is finished  [4] tenants: how many more tenants get it
        [5] endpoints: how many more endpoints get it
  Reply the last tenant that has it; 1 if it is finished; how many tenants get it, and endpoints. Empty if it is unknown.
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

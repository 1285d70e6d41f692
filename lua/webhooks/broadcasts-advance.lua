--[[
  broadcasts-advance: records the progress of a broadcast, unless another process has already recorded more. A
  finished broadcast keeps its type and its counts, but not its data or tenant names.

  KEYS  [1] broadcast: hash, expires
  ARGV  [1] from: the last tenant that had received it when the caller read it  [2] to: the last tenant that has
            received it now
        [3] is_done: 1 if it is finished  [4] tenants: how many more tenants have received it
        [5] endpoints: how many more endpoints have received it
  Reply the last tenant that has received it; 1 if it is finished; the numbers of tenants and of endpoints that have
        received it. Empty if the broadcast does not exist.
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

--[[
  endpoints-remove: removes an endpoint, with what is known of its health and its log.

  KEYS  [1] endpoints  [2] ids  [3] versions  [4] rates  [5] changed  [6] number, all as in endpoints-put
        [7] disabled: hash of the tenant's disabled endpoints  [8] health  [9] log  [10] failed, of the endpoint
  ARGV  [1] the tenant  [2] the endpoint  [3] the key of its jobs
  Reply 1 if it was there, else 0
]]
-- @include lib/webhooks/changed
local endpoints, ids, versions, rates, changed, number = unpack(KEYS)
local tenant, id, key = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HDEL', endpoints, id) == 0 then return 0 end

redis.call('ZREM', ids, id)
note_change(versions, tenant)
redis.call('HDEL', KEYS[7], id)
redis.call('UNLINK', KEYS[8], KEYS[9], KEYS[10])
if redis.call('HDEL', rates, key) == 1 then
  redis.call('ZADD', changed, redis.call('INCR', number), key)
end
return 1

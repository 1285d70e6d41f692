--[[
  endpoints-remove: removes an endpoint, with what is known of its health and its log. The messages that wait in its line
  are marked "removed" there.

  KEYS  [1] endpoints  [2] ids  [3] versions  [4] rates  [5] changed  [6] number  [7] tenants, all as in endpoints-put
        [8] disabled: hash of the tenant's disabled endpoints  [9] health  [10] log  [11] failed
        [12] line  [13] its state, of the endpoint
  ARGV  [1] the tenant  [2] the endpoint  [3] the key of its jobs  [4] the keys of the tenant's messages, up to their ids
  Reply 1 if it was there, else 0
]]
-- @include lib/webhooks/changed
-- @include lib/webhooks/own-limits
local endpoints, ids, versions, rates, changed, number, tenants = unpack(KEYS)
local tenant, id, key, messages = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local LOOKED_AT_ONCE = 1000
if redis.call('HDEL', endpoints, id) == 0 then return 0 end

redis.call('ZREM', ids, id)
note_change(versions, tenant)
redis.call('HDEL', KEYS[8], id)
for from = 0, redis.call('LLEN', KEYS[12]) - 1, LOOKED_AT_ONCE do
  for _, entry in ipairs(redis.call('LRANGE', KEYS[12], from, from + LOOKED_AT_ONCE - 1)) do
    local message = messages .. string.match(entry, '^%S+ (%S+)')
    local at, state = unpack(redis.call('HMGET', message, 'at', 'to:' .. id))
    if at and state ~= 'delivered' and state ~= 'failed' then redis.call('HSET', message, 'to:' .. id, 'removed') end
  end
end
redis.call('UNLINK', KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13])
set_limits(rates, changed, number, key, '')
if redis.call('EXISTS', endpoints) == 0 then redis.call('ZREM', tenants, tenant) end
return 1

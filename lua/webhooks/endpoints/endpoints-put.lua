--[[
  endpoints-put: stores an endpoint, unless another process has changed it since the caller read it.

  KEYS  [1] endpoints: hash of the tenant's records, by id  [2] ids: zset of the same ids, all with score 0
        [3] versions: hash of the time of the last change of each tenant
        [4] rates  [5] changed  [6] number, all as in lib/webhooks/own-limits
        [7] tenants: zset of the tenants with endpoints, all with score 0
  ARGV  [1] tenant  [2] endpoint  [3] record  [4] before: the record that the caller read; '' for a new endpoint
        [5] most: the most endpoints of a tenant  [6] key: the key of its jobs
        [7] limits: its own limits as text, or ''
  Reply 1 if it was stored, 0 if it was changed by another process, -1 if the tenant has too many endpoints
]]
-- @include lib/webhooks/note-change
-- @include lib/webhooks/own-limits
local tenant, id, record, before = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local endpoints, ids, versions, rates, changed, number, tenants = unpack(KEYS)
local most, key, limits = tonumber(ARGV[5]), ARGV[6], ARGV[7]
if (redis.call('HGET', endpoints, id) or '') ~= before then return 0 end
if before == '' and redis.call('HLEN', endpoints) >= most then return -1 end

redis.call('HSET', endpoints, id, record)
redis.call('ZADD', ids, 0, id)
redis.call('ZADD', tenants, 0, tenant)
note_change(versions, tenant)
set_limits(rates, changed, number, key, limits)
return 1

--[[
  endpoints-put: stores an endpoint, unless somebody has changed it since it was read.

  KEYS  [1] endpoints: hash of the tenant's records, by id  [2] ids: zset of the same ids, all of score 0
        [3] versions: hash of when the endpoints of each tenant were changed last
        [4] rates: hash of the limits that endpoints have of their own, by the keys of their jobs
        [5] changed: zset of these keys, by the number of the last change  [6] that number
        [7] tenants: zset of those that have endpoints, all of score 0
  ARGV  [1] the tenant  [2] the endpoint  [3] its record  [4] the record that it must have; empty if it must be new
        [5] the most endpoints of a tenant  [6] the key of its jobs  [7] its own limits; empty if it has none
  Reply 1 stored, 0 it is another by now, -1 the tenant has too many
]]
-- @include lib/webhooks/changed
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

--[[
  endpoints-remove: removes an endpoint with its health and its log. The pending messages in its line are marked
  "removed". A long line needs several runs; the last run removes the endpoint.

  KEYS  [1] endpoints  [2] ids  [3] versions  [4] rates  [5] changed  [6] number  [7] tenants, all as in endpoints-put
        [8] disabled: hash of the tenant's disabled endpoints  [9] health  [10] log  [11] failed
        [12] line  [13] state, both as in lib/webhooks/line
  ARGV  [1] tenant  [2] endpoint  [3] key: the key of its jobs
        [4] messages: the beginning of the keys of the tenant's messages
        [5] most: how many messages of the line one run removes
  Reply 1 if it was removed, 0 if it did not exist, 2 if this must run again
]]
-- @include lib/webhooks/note-change
-- @include lib/webhooks/own-limits
local endpoints, ids, versions, rates, changed, number, tenants = unpack(KEYS)
local line, state = KEYS[12], KEYS[13]
local tenant, id, key, messages, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if redis.call('HEXISTS', endpoints, id) == 0 then return 0 end

for _, entry in ipairs(redis.call('LRANGE', line, 0, most - 1)) do
  local message = messages .. string.match(entry, '^%S+ (%S+)')
  local at, became = unpack(redis.call('HMGET', message, 'at', 'to:' .. id))
  if at and became ~= 'delivered' and became ~= 'failed' then redis.call('HSET', message, 'to:' .. id, 'removed') end
end
redis.call('LTRIM', line, most, -1)
-- An attempt that is still running changes nothing once the state is deleted.
redis.call('DEL', state)
if redis.call('EXISTS', line) == 1 then return 2 end

redis.call('HDEL', endpoints, id)
redis.call('ZREM', ids, id)
note_change(versions, tenant)
redis.call('HDEL', KEYS[8], id)
redis.call('UNLINK', KEYS[9], KEYS[10], KEYS[11])
set_limits(rates, changed, number, key, '')
if redis.call('EXISTS', endpoints) == 0 then redis.call('ZREM', tenants, tenant) end
return 1

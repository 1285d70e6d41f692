--[[
  messages-expunge: removes messages of a tenant with all their data, a limited number per run.

  KEYS  [1] messages  [2] ends: zsets of the tenant's message ids  [3] endpoints: hash of its records  [4] ids
        [5] disabled: hash  [6] versions: hash, of all tenants  [7] tenants: zset
  ARGV  [1] base: the beginning of the sender's keys  [2] tenant  [3] encoded: the tenant as it is written in keys
        [4] message: one message to remove; '' removes the tenant's oldest messages, and finally the rest of its data
        [5] most: the most messages to remove
  Reply the number of removed messages; 1 if nothing is left to remove
]]
-- @include lib/webhooks/expunge
local messages, ends, endpoints, ids, disabled, versions, tenants = unpack(KEYS)
local base, tenant, encoded, id, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if id ~= '' then return { expunge_message(base, encoded, messages, ends, id) and 1 or 0, 1 } end

local found = redis.call('ZRANGE', messages, 0, most - 1)
if #found == 0 then found = redis.call('ZRANGE', ends, 0, most - 1) end
local removed = 0
for _, each in ipairs(found) do
  if expunge_message(base, encoded, messages, ends, each) then removed = removed + 1 end
end
if redis.call('EXISTS', messages, ends) > 0 then return { removed, 0 } end
-- If an endpoint was stored in the meantime, the rest of the tenant's data stays.
if redis.call('EXISTS', endpoints) == 0 then
  redis.call('UNLINK', ids, disabled)
  redis.call('HDEL', versions, tenant)
  redis.call('ZREM', tenants, tenant)
end
return { removed, 1 }

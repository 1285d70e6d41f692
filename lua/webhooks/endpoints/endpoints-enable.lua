--[[
  endpoints-enable: disables an endpoint, or enables it and forgets how it was.

  KEYS  [1] endpoints  [2] versions  [3] disabled: hash of why, by id  [4] health: hash
  ARGV  [1] the tenant  [2] the endpoint  [3] why it is disabled; empty to enable it
  Reply 1 if it was changed, 0 if it was so before, -1 if there is none
]]
-- @include lib/now-ms
-- @include lib/webhooks/changed
local tenant, id, why = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HEXISTS', KEYS[1], id) == 0 then return -1 end
local was = redis.call('HEXISTS', KEYS[3], id)
if why == '' then
  redis.call('UNLINK', KEYS[4])
  if was == 0 then return 0 end
  redis.call('HDEL', KEYS[3], id)
else
  if was == 1 then return 0 end
  redis.call('HSET', KEYS[3], id, now_ms() .. ' ' .. why)
end
note_change(KEYS[2], tenant)
return 1

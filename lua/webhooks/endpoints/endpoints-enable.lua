--[[
  endpoints-enable: disables an endpoint, or enables it and clears its health.

  KEYS  [1] endpoints  [2] versions  [3] disabled: hash of reasons by id  [4] health: hash
  ARGV  [1] tenant  [2] endpoint  [3] why: the reason for disabling it; '' enables it
  Reply 1 if its state was changed, 0 if it already was in that state, -1 if it does not exist
]]
-- @include lib/time/now-ms
-- @include lib/webhooks/note-change
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

--[[
  endpoints-wake: has the workers of a sender end what an endpoint was made to wait for.

  KEYS  [1] changed  [2] number, both as in lib/webhooks/own-limits
  ARGV  [1] the key of the endpoint's jobs, marked as one that is to be woken
  Reply nothing
]]
local changed, number, key = KEYS[1], KEYS[2], ARGV[1]
redis.call('ZADD', changed, redis.call('INCR', number), key)

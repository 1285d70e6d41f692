--[[
  endpoints-wake: makes all workers of a sender end an endpoint's pause.

  KEYS  [1] changed  [2] number, both as in lib/webhooks/own-limits
  ARGV  [1] key: the key of the endpoint's jobs, after a "!"
  Reply nothing
]]
local changed, number, key = KEYS[1], KEYS[2], ARGV[1]
redis.call('ZADD', changed, redis.call('INCR', number), key)

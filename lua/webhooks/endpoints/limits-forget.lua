--[[
  limits-forget: removes the names of an expunged tenant and of its endpoints from the list of changed limits. Processes that
  know limits of the tenant hear by a digest that those have ended.

  KEYS  [1] changed  [2] number, both as in lib/webhooks/own-limits
  ARGV  [1] the digest, marked as such  [2…] the names
  Reply nothing
]]
local changed, number, digest = KEYS[1], KEYS[2], ARGV[1]
for at = 2, #ARGV do redis.call('ZREM', changed, ARGV[at]) end
redis.call('ZADD', changed, redis.call('INCR', number), digest)

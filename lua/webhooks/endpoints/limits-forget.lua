--[[
  limits-forget: removes the names of an expunged tenant and of its endpoints from the list of changed limits. Then
  adds a digest of the tenant, so that other processes remove the tenant's limits from their caches.

  KEYS  [1] changed  [2] number, both as in lib/webhooks/own-limits
  ARGV  [1] digest: the digest of the tenant, after a "*"  [2…] names
  Reply nothing
]]
local changed, number, digest = KEYS[1], KEYS[2], ARGV[1]
for at = 2, #ARGV do redis.call('ZREM', changed, ARGV[at]) end
redis.call('ZADD', changed, redis.call('INCR', number), digest)

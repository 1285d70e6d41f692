-- The limits that a tenant or an endpoint has of its own, by the text of its key: `rates`, a hash; `changed`, a zset of the
-- keys by the number of their last change; and that number. Processes read what has changed since they looked. A key with a
-- "!" before it is to be woken (endpoints-wake); after a "*" comes the digest of an expunged tenant (limits-forget).
local function set_limits(rates, changed, number, key, limits)
  if (redis.call('HGET', rates, key) or '') == limits then return end
  if limits == '' then redis.call('HDEL', rates, key) else redis.call('HSET', rates, key, limits) end
  redis.call('ZADD', changed, redis.call('INCR', number), key)
end

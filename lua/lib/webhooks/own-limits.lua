-- Stores the own limits of tenants and endpoints, by the texts of their keys. `rates` is a hash of limits. `number`
-- counts the changes, and `changed` is a zset of keys by the number of their last change. Processes read the changes
-- since their last read. A "!" precedes a key to wake (endpoints-wake). A "*" precedes the digest of an expunged
-- tenant (limits-forget).
local function set_limits(rates, changed, number, key, limits)
  if (redis.call('HGET', rates, key) or '') == limits then return end
  if limits == '' then redis.call('HDEL', rates, key) else redis.call('HSET', rates, key, limits) end
  redis.call('ZADD', changed, redis.call('INCR', number), key)
end

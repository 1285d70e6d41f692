--[[
  override-end: removes an override of a bucket.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] bucket  [2] id: the id of the change that began it
  Reply nil
]]
redis.call('HDEL', KEYS[1] .. ':overrides:' .. ARGV[1], ARGV[2])
redis.call('ZREM', KEYS[1] .. ':due', ARGV[2] .. '|' .. ARGV[1])

--[[
  override-end: forgets an override of a bucket.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket  [2] the id of the change that began it
  Reply nil
]]
redis.call('HDEL', KEYS[1] .. ':overrides:' .. ARGV[1], ARGV[2])
redis.call('ZREM', KEYS[1] .. ':due', ARGV[2] .. '|' .. ARGV[1])

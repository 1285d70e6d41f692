--[[
  override-end: forgets an override of a bucket, unless another has come since.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket  [2] the id of the change that began it
  Reply nil
]]
local overrides = KEYS[1] .. ':overrides'
local found = redis.call('HGET', overrides, ARGV[1])
if found and string.sub(found, 1, #ARGV[2] + 1) == ARGV[2] .. '|' then
  redis.call('HDEL', overrides, ARGV[1])
  redis.call('ZREM', KEYS[1] .. ':due', ARGV[1])
end

--[[
  change-amend: says what became of a change that was noted.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the change's id  [2] what became of it, as JSON  [3] for how long that is kept, in ms
  Reply nil
]]
redis.call('SET', KEYS[1] .. ':fate:' .. ARGV[1], ARGV[2], 'PX', ARGV[3])

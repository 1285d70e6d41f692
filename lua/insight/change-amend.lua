--[[
  change-amend: stores the result of a change.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] id: the id of the change  [2] fate: the result, as JSON  [3] kept_ms: ms for which it is kept
  Reply nil
]]
redis.call('SET', KEYS[1] .. ':fate:' .. ARGV[1], ARGV[2], 'PX', ARGV[3])

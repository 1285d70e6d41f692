--[[
  heads-look: makes workers immediately check ordered lanes whose head jobs were replayed, purged or removed.

  KEYS  as in lanes-join
  ARGV  [1] prefix: the prefix of the queue's keys  [2…] of_keys: the keys of the lanes
  Reply the number of lanes to check
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local found = 0
for at = 2, #ARGV do
  if redis.call('ZSCORE', lanes.heads, ARGV[at]) then
    redis.call('ZADD', lanes.heads, lanes.now_ms, ARGV[at])
    found = found + 1
  end
end
if found > 0 then announce(lanes) end
return found

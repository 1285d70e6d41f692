--[[
  workers-look: counts the live workers of a queue. Changes nothing.

  KEYS  as in workers-note
  ARGV  none
  Reply the number of live workers, and how many jobs they can run at once
]]
-- @include lib/time/now-ms
local now, all, workers, places = now_ms(), redis.call('HGETALL', KEYS[1]), 0, 0
for at = 2, #all, 2 do
  local until_ms, its_places = string.match(all[at], '^(%d+) (%d+)$')
  if until_ms and tonumber(until_ms) > now then workers, places = workers + 1, places + tonumber(its_places) end
end
return { workers, places }

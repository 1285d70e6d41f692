--[[
  workers-note: notes that a worker is alive for a while, and forgets those whose time is over.

  KEYS  [1] the live workers of a queue, each with "<until when, in ms since 1970> <its places>": hash; expires with
            the last of them
  ARGV  [1] the worker  [2] how many jobs it can have at once  [3] ms for which it counts as alive; 0 if it ends
  Reply nothing
]]
-- @include lib/now-ms
local workers, worker, places, for_ms = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
if for_ms > 0 then redis.call('HSET', workers, worker, string.format('%.0f', now + for_ms) .. ' ' .. places)
else redis.call('HDEL', workers, worker) end
local all, left_ms = redis.call('HGETALL', workers), 0
for at = 1, #all, 2 do
  local its_ms = tonumber(string.match(all[at + 1], '^%d+')) - now
  if its_ms <= 0 then redis.call('HDEL', workers, all[at]) end
  left_ms = math.max(left_ms, its_ms)
end
if left_ms > 0 then redis.call('PEXPIRE', workers, string.format('%.0f', left_ms)) end
return 1

--[[
  workers-note: records that a worker is alive for some time, and removes workers whose time has expired. It also
  counts the attempts that have ended since the worker's last report.

  KEYS  [1] the live workers of a queue: hash of "<until when, in ms since 1970> <how many jobs it can run at once>";
            expires with the last of them
        [2] the outcomes of attempts in steps of ten seconds: hash, "<step> <done, failed or ms>" -> sum; expires two
            minutes after the last outcome
  ARGV  [1] worker  [2] places: how many jobs it can run at once
        [3] for_ms: ms for which it counts as alive; 0 when the worker closes  [4] done: how many attempts succeeded
        [5] failed: how many failed  [6] busy_ms: the sum of their durations, in ms
  Reply nothing
]]
-- @include lib/time/now-ms
local workers, ended = KEYS[1], KEYS[2]
local worker, places, for_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local done, failed, busy_ms = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
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
if done + failed == 0 then return 1 end

local step = math.floor(now / 10000)
for name, count in pairs({ done = done, failed = failed, ms = busy_ms }) do
  redis.call('HINCRBY', ended, string.format('%.0f %s', step, name), string.format('%.0f', count))
end
redis.call('PEXPIRE', ended, 120000)
-- Removes old steps, because only the last minute is read.
if redis.call('HLEN', ended) > 24 then
  for _, field in ipairs(redis.call('HKEYS', ended)) do
    if math.abs(tonumber(string.match(field, '^%d+')) - step) > 6 then redis.call('HDEL', ended, field) end
  end
end
return 1

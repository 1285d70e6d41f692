--[[
  ended-look: adds up the attempts of a queue that ended in about the last minute. Changes nothing.

  KEYS  [1] the outcomes of attempts, as in workers-note
  ARGV  none
  Reply the number of successes, the number of failures, the sum of their durations in ms, and the length of the time
        covered, in ms
]]
-- @include lib/time/now-ms
local now = now_ms()
local step, sums = math.floor(now / 10000), { done = 0, failed = 0, ms = 0 }
local all = redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  local its_step, name = string.match(all[at], '^(%d+) (%a+)$')
  local age = step - tonumber(its_step)
  if age >= 0 and age <= 5 then sums[name] = sums[name] + tonumber(all[at + 1]) end
end
return { sums.done, sums.failed, sums.ms, now - (step - 5) * 10000 }

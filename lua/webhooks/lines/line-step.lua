--[[
  line-step: an attempt at an ordered endpoint is over. Its messages leave the line, or are tried again as its next step.

  KEYS  [1] line: list  [2] state: hash, both as in lib/webhooks/line
  ARGV  [1] the step that is over  [2] how many messages leave  [3] the number of the next attempt
  Reply the step that is next; empty if nothing waits, or another had ended this one
]]
local line, state, step, leaving, attempt = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), ARGV[3]
if redis.call('HGET', state, 'step') ~= step then return '' end
if leaving > 0 then
  redis.call('LTRIM', line, leaving, -1)
  redis.call('HSET', state, 'taken', 0)
end
if redis.call('EXISTS', line) == 0 then
  redis.call('DEL', state)
  return ''
end
redis.call('HSET', state, 'attempt', attempt)
return string.format('%.0f', redis.call('HINCRBY', state, 'step', 1))

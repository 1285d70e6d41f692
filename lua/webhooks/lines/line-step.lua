--[[
  line-step: ends an attempt at an ordered endpoint. Its messages are removed from the line, or the next step retries
  them.

  KEYS  [1] line: list  [2] state: hash, both as in lib/webhooks/line
  ARGV  [1] step: the step that ends  [2] leaving: how many messages are removed
        [3] attempt: the number of the next attempt
  Reply the next step; '' if the line is empty, or if another process has already ended this step
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

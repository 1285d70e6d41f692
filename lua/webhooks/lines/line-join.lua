--[[
  line-join: has messages wait in the line of an ordered endpoint, behind all that wait there.

  KEYS  [1] line: list  [2] state: hash, both as in lib/webhooks/line
  ARGV  [1…] the entries
  Reply the step that is next
]]
-- @include lib/webhooks/line
local line, state = KEYS[1], KEYS[2]
join_line(line, state, ARGV)
return redis.call('HGET', state, 'step')

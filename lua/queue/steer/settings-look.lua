--[[
  settings-look: reads the active settings of a queue that operators have set. Changes nothing.

  KEYS  [1] the state of the lanes: hash  [2] the settings that operators have set, as in settings-set
  ARGV  none
  Reply the generation; now, in ms since 1970; then the name and the stored text of each setting, as in settings-set
]]
-- @include lib/time/now-ms
local now, all = now_ms(), redis.call('HGETALL', KEYS[2])
local reply = { tonumber(redis.call('HGET', KEYS[1], 'generation') or 0), now }
for at = 1, #all, 2 do
  local until_ms = tonumber(string.match(all[at + 1], '^%d+|(%d*)|'))
  if not until_ms or until_ms > now then reply[#reply + 1], reply[#reply + 2] = all[at], all[at + 1] end
end
return reply

--[[
  settings-set: sets or removes an operator's settings of a queue.

  KEYS  [1] the state of the lanes: hash
        [2] the settings that operators have set: hash of "<at>|<until, or nothing>|<JSON>"
  ARGV  [1] since: the generation that the caller has seen, or ""
        [2…] name, for_ms, text: three values per setting: its name; the ms for which it is active, "" without an end;
            and its JSON, "" to remove it
  Reply 1 if the settings were changed, 0 if another change came after that generation; then the current generation
]]
-- @include lib/time/now-ms
-- @include lib/lanes/generation
local state, settings, now = KEYS[1], KEYS[2], now_ms()
local is_next, generation = next_generation(state, ARGV[1], now)
if not is_next then return { 0, generation } end
for at = 2, #ARGV, 3 do
  local name, for_ms, text = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
  local until_ms = for_ms and string.format('%.0f', now + for_ms) or ''
  if text == '' then redis.call('HDEL', settings, name)
  else redis.call('HSET', settings, name, string.format('%.0f|%s|%s', now, until_ms, text)) end
end
return { 1, generation }

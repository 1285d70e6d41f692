--[[
  outbox-report: stores what a relay reports about its outbox.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] outbox: the id of the outbox  [2] state: its name and the numbers of its rows, as JSON
        [3] moved: the rows that the relay has moved since its last report
        [4] kept_ms: ms for which an outbox is kept after its last report
  Reply nil
]]
-- @include lib/time/now-ms

local base, outbox, kept_ms, now = KEYS[1], ARGV[1], tonumber(ARGV[4]), now_ms()
local states, moved = base .. ':outboxes', base .. ':outboxes-moved'

redis.call('HSET', states, outbox, now .. '|' .. ARGV[2])
redis.call('HINCRBY', moved, outbox, ARGV[3])
local stored = redis.call('HGETALL', states)
for at = 1, #stored, 2 do
  local reported_ms = tonumber(string.match(stored[at + 1], '^%d+'))
  if reported_ms <= now - kept_ms then
    for _, key in ipairs({ states, moved }) do redis.call('HDEL', key, stored[at]) end
  end
end
for _, key in ipairs({ states, moved }) do redis.call('PEXPIRE', key, kept_ms) end

--[[
  slot-note: notes what became of a slot that a server has given to a caller. Twin of src/memory/memory-slots.ts.

  KEYS  [1] note: hash, until_ms (if it was renewed), settled, released (by which request); expires when the slot is over
  ARGV  [1] what to note: look (nothing), settle, release or renew
        [2] until when the slot is held unless it was renewed, in ms since 1970  [3] for how long it is renewed, in ms
        [4] the request: one whose reply was lost may come again
  Reply { what it was before: held, settled, or over: nothing is noted of that; for how long it is held now, in ms }
]]
-- @include lib/now

local key, what, first_ms, hold_ms, request = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if not first_ms or not hold_ms then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local now_ms = math.floor(now_us(0) / 1000)
local kept = redis.call('HMGET', key, 'until_ms', 'settled', 'released')
local until_ms = tonumber(kept[1] or first_ms)
local is_released = kept[3] and kept[3] ~= request
if is_released or until_ms <= now_ms then return { 'over', 0 } end

if what == 'settle' and not kept[2] then redis.call('HSET', key, 'settled', request) end
if what == 'release' then redis.call('HSET', key, 'released', request) end
if what == 'renew' then
  until_ms = now_ms + hold_ms
  redis.call('HSET', key, 'until_ms', string.format('%.0f', until_ms))
end
if what ~= 'look' then redis.call('PEXPIRE', key, math.max(until_ms, first_ms) - now_ms) end
local is_settled = kept[2] and kept[2] ~= request
return { is_settled and 'settled' or 'held', until_ms - now_ms }

--[[
  slot-note: notes what became of a slot that a server has given to a caller, where no cost is booked with it.

  KEYS  [1] note: hash, see lib/state/slot-note
  ARGV  [1] what to note: look, settle, release or renew
        [2] until when the slot is held unless it was renewed, in ms since 1970  [3] for how long it is renewed, in ms
        [4] the request: one whose reply was lost may come again
  Reply { what it was before: held, settled or over; for how long it is held now, in ms }
]]
-- @include lib/now
-- @include lib/state/slot-note

local key, what, first_ms, hold_ms, request = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if not first_ms or not hold_ms then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local state, left_ms = note_slot(key, what, first_ms, hold_ms, request, math.floor(now_us(0) / 1000))
return { state, left_ms }

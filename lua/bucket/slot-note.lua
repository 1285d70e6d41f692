--[[
  slot-note: stores the state of a slot that a server has granted to a caller, if no cost is booked at the same time.

  KEYS  [1] note: hash, see lib/state/slot-note
  ARGV  [1] what: look, settle, release or renew
        [2] until_ms: when the slot expires unless it is renewed, in ms since 1970  [3] hold_ms: ms for which it is renewed
        [4] request: identifies the request, which may be repeated after a lost reply
  Reply { the previous state: held, settled or over; ms until the slot expires now }
]]
-- @include lib/time/now
-- @include lib/state/slot-note

local key, what, first_ms, hold_ms, request = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
if not first_ms or not hold_ms then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local state, left_ms = note_slot(key, what, first_ms, hold_ms, request, math.floor(now_us(0) / 1000))
return { state, left_ms }

-- When the key of a call lets it start at a slot that the shared limits give. Twin of startForKey in src/core/draw/book.ts.

-- A slot may be pushed back to this far from now to suit a key. So calls of the key keep to its rate although each is
-- asked for a little late, and other keys wait no longer than this.
local MOST_PUSHED_US = 2000
-- No slot is pushed for this long after a try: tries look only at now, and a pushed slot would refuse them.
local UNTRIED_US = 3600000000

local function lets_pass(fitting, at_us)
  return earliest_for_all_us(fitting.scope, at_us, fitting.costs, fitting.drawer) == at_us
end

-- The time at which the call may start: the slot, or up to MOST_PUSHED_US from now. Otherwise nil, when to ask again, and
-- when it may start then.
-- The first slot says how far ahead the shared limits give slots now; they will still do so later.
local function start_for_key(booking, first_us, slot_us)
  local key, is_try = booking.key_fitting, booking.serving.is_try
  local now_us = key.drawer.now_us
  local opens_us = opens_at_us(key.scope, now_us, key.step_us)
  local passes_us = earliest_for_all_us(key.scope, opens_us, key.costs, key.drawer)
  if passes_us == math.huge then return nil, math.huge, math.huge end
  local start_us, is_free = math.max(slot_us, passes_us), delays_none(key, 1)
  -- A slot is not pushed past earlier turns: the key's times only go forward, so nothing would be left to them.
  if is_free and start_us == slot_us and lets_pass(key, start_us) then return start_us end

  local is_tried = is_try or now_us < booking.serving.bucket.tried_us + UNTRIED_US
  local push_us = is_tried and 0 or math.min(booking.until_us - now_us, MOST_PUSHED_US)
  local is_in_reach = is_free and start_us <= now_us + push_us
  if is_in_reach and lets_pass(key, start_us) and lets_pass(booking.main, start_us) then return start_us end
  local turn_us = turn_of(key, key.ahead, opens_us, 1)
  local soonest_us = (is_try or is_free) and now_us or now_us + LEAST_ASK_GAP_US
  return nil, math.max(soonest_us, turn_us - math.max(first_us - now_us, push_us)), turn_us
end

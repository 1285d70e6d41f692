-- When the key of a call lets it start at a slot that the shared limits give. Twin of startForKey in src/core/draw/book.ts.

-- A slot may be pushed back to this far from now to suit a key. So calls of the key keep to its rate although each is
-- asked for a little late, and other keys wait no longer than this.
local MOST_PUSHED_US = 2000
-- No slot is pushed for this long after a try: tries look only at now, and a pushed slot would refuse them.
local UNTRIED_US = 3600000000

local function lets_pass(fitting, at_us)
  return earliest_for_all_us(fitting.scope, at_us, fitting.costs, fitting.drawer) == at_us
end

-- The time at which the call may start: the slot, or up to MOST_PUSHED_US from now. Otherwise nil and when to ask again.
-- The first slot says how far ahead the shared limits give slots now; they will still do so later.
local function start_for_key(booking, first_us, slot_us, is_served)
  local key = booking.key_fitting
  local now_us, claim = key.drawer.now_us, key.claim
  -- A key that was just served comes after all others.
  local is_due = not is_served and key.own.turn_us >= claim.since_us
  local own_turn_us = is_due and key.own.turn_us or math.huge
  local one = { asker = claim.asker, rank = claim.rank, step_us = claim.step_us, share = 1, since_us = claim.since_us }
  -- While askers wait for turns in the bucket, they come at those; slots left to them here would be lost, but for more
  -- urgent calls.
  local is_contended = booking.main.scope.turns_until_us >= booking.main.claim.since_us
  if is_contended then one.rank = claim.rank - 1 end
  local left = slots_before(key.scope, one, key.own, own_turn_us)
  local passes_us = earliest_for_all_us(key.scope, opens_at_us(key.scope, now_us, key.step_us), key.costs, key.drawer)
  local start_us = math.max(slot_us, passes_us + math.floor(left * key.step_us))
  if start_us == slot_us and lets_pass(key, start_us) then return start_us end

  one.rank = claim.rank
  local before = is_contended and slots_before(key.scope, one, key.own, own_turn_us) or left
  local is_tried = booking.serving.is_try or now_us < booking.serving.bucket.tried_us + UNTRIED_US
  local push_us = is_tried and 0 or math.min(booking.until_us - now_us, MOST_PUSHED_US)
  -- A slot is not pushed past earlier turns: the key's times only go forward, so nothing would be left to them.
  local is_in_reach = before == 0 and start_us <= now_us + push_us
  if is_in_reach and lets_pass(key, start_us) and lets_pass(booking.main, start_us) then return start_us end
  local turn_us = passes_us + math.floor(before * key.step_us)
  return nil, math.max(now_us, turn_us - math.max(first_us - now_us, push_us))
end

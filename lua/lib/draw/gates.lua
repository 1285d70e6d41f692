-- When the gates of a call let it start at a slot that the limits which decide the slots give. Twin of startThrough in
-- src/core/draw/book.ts.

-- A slot may be pushed back to this far from now to suit a key. So calls of the key keep to its rate although each is
-- asked for a little late, and other keys wait no longer than this.
local MOST_PUSHED_US = 2000
-- No slot is pushed for this long after a try: tries look only at now, and a pushed slot would refuse them.
local UNTRIED_US = 3600000000

local function lets_pass(fitting, at_us)
  return earliest_for_all_us(fitting.scope, at_us, fitting.costs, fitting.drawer) == at_us
end

-- When the limits of a key let a call pass, and whether that would delay nobody who waits for the key.
local function pass_of(gate)
  local opens_us = opens_at_us(gate.scope, gate.drawer.now_us, gate.step_us)
  local passes_us = earliest_for_all_us(gate.scope, opens_us, gate.costs, gate.drawer)
  return { gate = gate, opens_us = opens_us, passes_us = passes_us, is_free = passes_us < math.huge and delays_none(gate, 1) }
end

local function deferred_at(pass, lead_us, is_try)
  if pass.passes_us == math.huge then return { gate = pass.gate, until_us = math.huge, start_us = math.huge } end
  local now_us, start_us = pass.gate.drawer.now_us, turn_of(pass.gate, pass.gate.ahead, pass.opens_us, 1)
  local soonest_us = (is_try or pass.is_free) and now_us or now_us + LEAST_ASK_GAP_US
  return { gate = pass.gate, until_us = math.max(soonest_us, start_us - lead_us), start_us = start_us }
end

-- The gate that holds a call back: the narrowest, unless a wider one does so for longer. Whom a narrow key holds back for
-- an unknown time, as until a lease comes free, must not hold up others at a wider one, nor wait for a lease there before
-- the narrow key lets it pass.
local function deferred_by(passes, slot_us, lead_us, is_try)
  local held = nil
  for index = #passes, 1, -1 do
    local pass = passes[index]
    if not (pass.is_free and pass.passes_us <= slot_us and lets_pass(pass.gate, slot_us)) then
      local deferred = deferred_at(pass, lead_us, is_try)
      if not held or (deferred.until_us > held.until_us and deferred.until_us < math.huge) then held = deferred end
    end
  end
  return held
end

-- The time at which all gates let the call start: the slot, or up to MOST_PUSHED_US from now. Otherwise nil, and what holds
-- it back: the gate, when to ask again, and when it may start then.
-- The first slot says how far ahead the shared limits give slots now; they will still do so later.
local function start_through(booking, first_us, slot_us)
  local gates = booking.gates
  if #gates == 0 then return slot_us end
  local is_try, now_us, start_us, are_free = booking.serving.is_try, booking.main.drawer.now_us, slot_us, true
  local passes = {}
  for index, gate in ipairs(gates) do
    local pass = pass_of(gate)
    passes[index], start_us, are_free = pass, math.max(start_us, pass.passes_us), are_free and pass.is_free
  end
  local let_pass = are_free
  for _, gate in ipairs(gates) do let_pass = let_pass and lets_pass(gate, start_us) end
  -- A slot is not pushed past earlier turns: the key's times only go forward, so nothing would be left to them.
  if let_pass and start_us == slot_us then return start_us end
  local is_tried = is_try or now_us < booking.serving.bucket.tried_us + UNTRIED_US
  local push_us = is_tried and 0 or math.min(booking.until_us - now_us, MOST_PUSHED_US)
  if let_pass and start_us <= now_us + push_us and lets_pass(booking.main, start_us) then return start_us end
  return nil, deferred_by(passes, slot_us, math.max(first_us - now_us, push_us), is_try)
end

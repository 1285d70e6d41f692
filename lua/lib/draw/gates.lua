-- Decides whether the gates of a call (its further keys) let it start at an offered slot.

-- A slot may be moved later to suit a key, up to this far from now. This keeps the key's rate although each draw
-- comes a little late, and other keys wait no longer than this.
local MOST_PUSHED_US = 2000
-- After a try, no slot is moved for this long. Tries check only the present, so a moved slot would refuse them.
local UNTRIED_US = 3600000000
-- A call is drawn again after an eighth of the time until its key lets it start. Otherwise, the call would be drawn
-- each millisecond if no call takes the slot just before that time, because the shared limits then offer no later
-- slot.
local PARTS_ASKED = 8

-- Returns when the limits of a key let a call start, whether that delays no other call that waits for the key, and
-- when the key opens.
local function pass_of(gate)
  local opens_us = opens_at_us(gate.scope, gate.drawer.now_us, gate.step_us)
  local passes_us = earliest_for_all_us(gate.scope, opens_us, gate.costs, gate.after, gate.drawer)
  return passes_us, passes_us < math.huge and delays_none(gate, 1), opens_us
end

-- Returns when to draw again for a call that a key lets start at start_us.
local function ask_at_us(gate, start_us, lead_us, may_be_now)
  local now_us = gate.drawer.now_us
  local soonest_us = may_be_now and now_us or now_us + LEAST_ASK_GAP_US
  local part_us = math.floor((start_us - MOST_PUSHED_US - now_us) / PARTS_ASKED)
  return math.max(soonest_us, now_us + part_us, start_us - lead_us)
end

-- Returns when to draw again for a call that a key refuses at a slot, and when the call may start then. Returns nil
-- if the key lets it start.
local function deferred_at(gate, slot_us, lead_us, is_try)
  local passes_us, is_free, opens_us = pass_of(gate)
  if is_free and passes_us <= slot_us then return nil end
  if passes_us == math.huge then return { gate = gate, until_us = math.huge, start_us = math.huge, lead_us = lead_us } end
  local start_us = turn_of(gate, gate.ahead, opens_us, times(gate, 1))
  local until_us = is_try and math.max(gate.drawer.now_us, start_us - lead_us) or ask_at_us(gate, start_us, lead_us, is_free)
  return { gate = gate, until_us = until_us, start_us = start_us, lead_us = lead_us }
end

-- Puts the unserved calls of a slot request behind the calls of other replicas that wait for the key.
local function put_behind(serving, slot_request, served, deferred)
  local gate, line = deferred.gate, deferred.gate.scope.line
  if served == 0 or not line or deferred.until_us == math.huge then return end
  local ahead = ahead_in(line, order_of_rest(slot_request, served, serving.now_us), math.huge)
  if #ahead == 0 then return end
  local opens_us = opens_at_us(gate.scope, gate.drawer.now_us, gate.step_us)
  deferred.start_us = turn_of(gate, ahead, opens_us, times(gate, 1))
  deferred.until_us = ask_at_us(gate, deferred.start_us, deferred.lead_us, false)
end

-- Returns the gate that delays a call: the narrowest one, unless a wider one delays the call for longer. A call may
-- wait at a narrow key for an unknown time, for instance for a lease. Then it must not delay other calls at a wider
-- key, nor wait for a lease there.
local function deferred_by(gates, slot_us, lead_us, is_try)
  local held = nil
  for index = #gates, 1, -1 do
    local deferred = deferred_at(gates[index], slot_us, lead_us, is_try)
    local is_later = held and deferred and deferred.until_us > held.until_us and deferred.until_us < math.huge
    if not held or is_later then held = deferred end
  end
  return held
end

-- Returns how far from now a slot may be moved. A replica that is far from Redis cannot draw again before a round trip
-- has passed, so its slots may be moved that far. Otherwise the time of its keys passes unused.
local function most_pushed_us(serving, until_us)
  if serving.is_try or serving.now_us < serving.bucket.tried_us + UNTRIED_US then return 0 end
  return math.min(until_us - serving.now_us, math.max(MOST_PUSHED_US, serving.trip_us))
end

-- Returns the time at which all gates let the call start: the slot, or up to most_pushed_us from now. Otherwise returns
-- nil, then the gate that delays the call, when to draw again, and when the call may start then. The first slot shows
-- how far ahead the shared limits offer slots: about as far as they do later.
local function start_through(serving, gates, first_us, slot_us, until_us)
  if #gates == 0 then return slot_us end
  local is_try, now_us, start_us, are_free = serving.is_try, serving.now_us, slot_us, true
  for index = 1, #gates do
    local gate = gates[index]
    local opens_us = opens_at_us(gate.scope, now_us, gate.step_us)
    local passes_us = earliest_for_all_us(gate.scope, opens_us, gate.costs, gate.after, gate.drawer)
    if passes_us > start_us then start_us = passes_us end
    are_free = are_free and passes_us < math.huge and (#gate.ahead == 0 or delays_none(gate, 1))
  end
  -- Does not move a slot past earlier turns of the key. The key books only later and later times, so these turns
  -- would get no slot.
  if are_free and start_us == slot_us then return start_us end
  local push_us = most_pushed_us(serving, until_us)
  -- A gate that lets a call start at its earliest time also lets it start later.
  if are_free and start_us <= now_us + push_us then return start_us end
  return nil, deferred_by(gates, slot_us, math.max(first_us - now_us, push_us), is_try)
end

-- Whether a key lets a call of its start at a slot that the others give. Twin of src/core/gate.ts.
-- So far from now a slot may be pushed back to suit a key, so that its calls keep to its rate although each is asked for
-- a little late.
local MOST_PUSHED_US = 2000
-- So long after a try at the earliest: who tries looks no further than now, and would be refused for what was pushed.
local UNTRIED_US = 3600000000

local function lets_pass(f, at_us)
  return agree_us(f.scope, at_us, f.costs, f.drawer) == at_us
end

-- When the key of a call lets it start that the others would give this slot, pushed back to 2 ms from now at most: by
-- more, and one slow key would hold up all. If it does not, nil and when to ask again: what the others give now lies as far
-- ahead as the first slot that they would have given in this draw, and later they will give as far.
local function pass_gate(b, first_us, slot_us, is_served)
  local gate = b.gate
  local now_us, claim = gate.drawer.now_us, gate.claim
  -- One that has been served stands behind all others.
  local is_due = not is_served and gate.own.turn_us >= claim.since_us
  local own_turn_us = is_due and gate.own.turn_us or math.huge
  local one = { asker = claim.asker, rank = claim.rank, step_us = claim.step_us, share = 1, since_us = claim.since_us }
  -- Who waits for a turn with the others comes at that, and what is left for it meanwhile is lost, but to more urgent calls.
  local is_contended = b.main.scope.turns_until_us >= b.main.claim.since_us
  if is_contended then one.rank = claim.rank - 1 end
  local left = slots_before(gate.scope, one, gate.own, own_turn_us)
  local passes_us = agree_us(gate.scope, opens_at_us(gate.scope, now_us, gate.step_us), gate.costs, gate.drawer)
  local start_us = math.max(slot_us, passes_us + math.floor(left * gate.step_us))
  if start_us == slot_us and lets_pass(gate, start_us) then return start_us end

  one.rank = claim.rank
  local before = is_contended and slots_before(gate.scope, one, gate.own, own_turn_us) or left
  local is_tried = b.serving.is_try or now_us < b.serving.bucket.tried_us + UNTRIED_US
  local push_us = is_tried and 0 or math.min(b.until_us - now_us, MOST_PUSHED_US)
  -- Pushed behind those whose turn comes first, it would leave them nothing: the key's times only go forward, too.
  local is_in_reach = before == 0 and start_us <= now_us + push_us
  if is_in_reach and lets_pass(gate, start_us) and lets_pass(b.main, start_us) then return start_us end
  local turn_us = passes_us + math.floor(before * gate.step_us)
  return nil, math.max(now_us, turn_us - math.max(first_us - now_us, push_us))
end

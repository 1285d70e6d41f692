-- Serves the slot requests of one draw, one after the other.

-- Returns the refusal of an earlier slot request that waits for the same limits, or nil. Slot requests under other
-- limits may use what is left.
local function refused_before(serving, slot_request)
  if serving.is_try then return nil end
  local shared, widest = serving.bucket.shared, slot_request.keys[1]
  local main = (#shared.limits > 0 or not widest) and shared or widest.scope
  local line = main and main.line
  local refused = line and line.refused
  if not refused or (refused.waits_for > 0 and slot_request.class.costs[refused.waits_for] == 0) then return nil end
  wait_behind(serving, slot_request, line)
  return refused
end

-- Makes a call that wider limits delay also wait at its narrower keys, because other calls of these keys must not
-- overtake it. A call that a narrower key delays keeps no position in wider scopes, so calls of other keys continue
-- there.
local function keep_behind(serving, gates, after_gate, slot_request, turn, left)
  if turn.turn_us == math.huge then return end
  local is_behind = after_gate == nil
  for _, gate in ipairs(gates) do
    local line = gate.scope.line
    -- Skips a line in which no other replica waits, and in which this replica did not wait before this draw.
    if is_behind and line and (line.own.since_us > 0 or #line.others > 0) then
      local served = slot_request.wanted - left
      local gate_turn = serving.is_fair and turn_like(turn, order_of_rest(slot_request, served, serving.now_us), NOTHING, slot_request) or turn
      add_to_gate(serving, gate, slot_request, gate_turn, left)
    end
    is_behind = is_behind or gate == after_gate
  end
end

-- Adds a turn for the replica to the line of the key that delays its call.
local function end_at_gate(serving, slot_request, gates, granted, deferred)
  local gate, left = deferred.gate, slot_request.wanted - granted.count
  if not serving.is_try then
    for_gates().put_behind(serving, slot_request, granted.count, deferred)
    local turn = { turn_us = deferred.until_us, due_us = deferred.until_us, start_us = deferred.start_us }
    turn.order = order_of_rest(slot_request, granted.count, serving.now_us)
    add_to_gate(serving, gate, slot_request, turn, left)
    keep_behind(serving, gates, gate, slot_request, turn, left)
  end
  granted.not_before_us = deferred.until_us
  local binding = binding_at(gate)
  -- If no limit of the key delays the call, the key's cooldown, pause or gap delays it.
  local held = closed_by({ gate }, serving.now_us)
  if held == 0 then held = slowed_by({ gate }, serving.now_us) end
  granted.binds_at = binding > 0 and gate.after + binding or held
end

-- True if the slot requests of a line share one slice of a horizon. If only leases of a key limit them, each slot
-- request is separate.
local function is_slice(main, gates)
  if main.number == 0 or #gates > 0 then return true end
  for _, limit in ipairs(main.scope.limits) do
    if RULES[limit.code].is_rate then return true end
  end
  return false
end

-- Sets the reason why a slot request got no more slots, and when to draw again.
local function end_slot_request(serving, slot_request, main, gates, granted, deferred, horizon_us)
  if deferred then
    end_at_gate(serving, slot_request, gates, granted, deferred)
    if serving.fair and slot_request.turns then for_fair().skip_turns(serving, slot_request, slot_request.wanted - granted.count) end
    if serving.is_try then for_tries().later_of_main(serving, main, granted) end
  else
    local line, is_own = main.line, main.number > 0
    local turn_us, waits_for = refuse(serving, slot_request, main, granted, main_opens_us(serving, main), horizon_us)
    if is_slice(main, gates) then line.refused = line.refused or {
      waits_for = waits_for, binds_at = granted.binds_at, not_before_us = is_own and turn_us or 0,
      slots = NOTHING, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, soonest_us = 0,
    } end
    if not serving.is_try then
      keep_behind(serving, gates, nil, slot_request, line.waiting[#line.waiting], slot_request.wanted - granted.count)
    end
    -- A try keeps no position, so this field contains the time to ask again.
    if is_own or serving.is_try then granted.not_before_us = turn_us end
  end
  local soonest_us, binds_at = soonest_of(serving, main, gates, horizon_us)
  granted.soonest_us = soonest_us
  if binds_at ~= 0 then granted.binds_at = binds_at end
  if serving.is_try then for_tries().until_open(serving, main, gates, granted) end
end

-- Returns the scope of a key. If Redis has lost the key's state, its limits start used up.
local function open_scope(key, now_us)
  local scope = key.scope or open_key(key, now_us)
  if key.is_lost then
    for_losses().use_up(scope, now_us)
    key.is_lost, key.is_used_up = false, true
  end
  return scope
end

-- Returns when a call could start, for a slot request that wants no slots, or that waits behind another one.
local function look(serving, slot_request, refused, horizon_us)
  -- All slot requests behind a refused one get the same reply.
  if refused and not slot_request.is_bounded then return refused end
  local granted = {
    slots = NOTHING, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, binds_at = 0, soonest_us = 0,
    not_before_us = refused and refused.not_before_us or 0,
  }
  local scopes = {}
  for index, key in ipairs(slot_request.is_bounded and slot_request.keys or NOTHING) do scopes[index] = open_scope(key, serving.now_us) end
  granted.soonest_us, granted.binds_at = soonest_unserved(serving, slot_request, scopes, horizon_us)
  return granted
end

-- Returns what a slot request must fit: the limits that decide its slots, and the gates, which must all allow the
-- same slots.
local function fit_all(serving, slot_request)
  local shared, gates, main, after = serving.bucket.shared, NOTHING, nil, #serving.bucket.shared.limits
  for index = 1, #slot_request.keys do
    local scope = open_scope(slot_request.keys[index], serving.now_us)
    local own = slot_request.positions and slot_request.positions[index] or NO_POSITION
    if after == 0 and not main then
      main = fit(serving, slot_request, line_of(serving, scope, own), index)
    else
      if gates == NOTHING then gates = {} end
      gates[#gates + 1] = fit_gate(serving, slot_request, scope, index, after, own)
    end
    after = after + #scope.limits
  end
  return main or fit(serving, slot_request, line_of(serving, shared, serving.own), 0), gates
end

local pool_functions = nil
local function for_pools()
  if pool_functions then return pool_functions end
-- @include lib/draw/pool
  pool_functions = {
    read_pool = read_pool, open_pool = open_pool, serve_from_pool = serve_from_pool,
    add_member_statuses = add_member_statuses,
  }
  return pool_functions
end

local function serve(serving, slot_request)
  if serving.pool then return for_pools().serve_from_pool(serving, slot_request) end
  local spent = has_budgets and for_budgets().spent_by(serving, slot_request, open_scope)
  if spent then return spent end
  local now_us, refused = serving.now_us, slot_request.wanted > 0 and refused_before(serving, slot_request)
  if slot_request.wanted == 0 or refused then return look(serving, slot_request, refused, horizon_of(serving, slot_request.rank)) end
  local granted, horizon_us = {
    slots = {}, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, not_before_us = 0, binds_at = 0, soonest_us = 0,
  }, horizon_of(serving, slot_request.rank)
  serving.drawer.order = line_order(serving, slot_request, 0)
  serving.drawer.reserves = slot_request.reserves
  if serving.is_fair then serving.gate_drawer = gate_drawer_of(serving, slot_request) end
  local main, gates = fit_all(serving, slot_request)
  local line = main.line
  -- A try takes no turns, so the horizon is not divided among replicas.
  local share_left = serving.is_try and slot_request.wanted or math.floor((1 - line.used) * main.share)
  local most, until_us = math.min(slot_request.wanted, math.max(line.used == 0 and 1 or 0, share_left)), now_us + horizon_us
  local is_from_holes = serving.bucket.holes > 0 and not serving.is_try and not has_budgets
  if is_from_holes then
    granted.slots = for_holes()(serving.bucket, ARGV[LAST_BEFORE_NAMES + slot_request.number], most, now_us + serving.horizon_us)
  end
  local recycled, deferred = #granted.slots, nil
  most = most - recycled
  if is_runnable(serving, main, gates) then
    book_run(serving, slot_request, main, most, until_us, granted)
  elseif is_at_once(serving, main, gates) then
    deferred = for_tries().book_at_once(serving, main, gates, most, until_us, granted)
  else
    deferred = book_list(serving, slot_request, main, gates, most, until_us, granted)
  end
  -- Does not count slots from holes again: they were counted when they were first booked.
  if #serving.shadows > 0 then for_shadows().count_calls(serving.shadows, granted, recycled, slot_request, main) end
  granted.count = #granted.slots + granted.run_count
  if granted.count > 0 then
    if slot_request.turns then for_fair().count_turns(serving.fair, slot_request, granted.count) end
    serving.has_granted, main.scope.is_served = true, true
    for index = 1, #gates do gates[index].scope.is_served = true end
    for index = 1, #slot_request.keys do slot_request.keys[index].is_drawn = true end
  end
  if is_slice(main, gates) then line.used = line.used + granted.count / main.share end
  -- The calls that were just served may have spent a budget. Then the rest waits in no line either.
  local rest = has_budgets and granted.count > 0 and granted.count < slot_request.wanted
    and for_budgets().spent_by(serving, slot_request, open_scope)
  if rest then
    granted.limit, granted.balance, granted.binds_at = rest.limit, rest.balance, rest.binds_at
    granted.soonest_us, granted.not_before_us = rest.soonest_us, rest.not_before_us
  elseif deferred or granted.count < slot_request.wanted then
    end_slot_request(serving, slot_request, main, gates, granted, deferred, horizon_us)
  end
  return granted
end

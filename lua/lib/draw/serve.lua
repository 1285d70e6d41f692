-- Serves the wishes of one draw, one after the other. Twin of src/core/draw/serve.ts.

-- The line in which a wish waits for its slots, if it has been opened.
local function main_line_of(serving, wish)
  local shared, widest = serving.bucket.shared, wish.keys[1]
  if #shared.limits > 0 or #wish.keys < 2 then return shared.line end
  return widest.scope and widest.scope.line
end

-- A wish before this one that waits for what this one needs too; others may fill what is left.
local function refused_before(serving, wish)
  local line = main_line_of(serving, wish)
  local refused = not serving.is_try and line and line.refused
  if not refused or (refused.waits_for > 0 and wish.costs[refused.waits_for] == 0) then return nil end
  -- Calls of another key may not be let pass by that key: others do not wait for them.
  if wish.keys[#wish.keys] ~= refused.key then return refused end
  local main, last = fit(serving, wish, line, line.scope == serving.bucket.shared and 0 or 1, 0, false), line.waiting[#line.waiting]
  local turn = { turn_us = last.turn_us, due_us = last.due_us, start_us = last.start_us }
  turn.order = order_of_rest(wish, 0, serving.now_us)
  add_needs(main, wish, turn, math.min(wish.wanted, main.flow), wish.wanted)
  return refused
end

-- A call that wider limits hold back came to the gates of its narrower keys: others of those keys must not pass it there
-- meanwhile. Narrower keys that hold it back keep no place in wider ones: there, calls of other keys go on.
local function keep_behind(gates, after_gate, wish, turn, left)
  local is_behind = after_gate == nil
  for _, gate in ipairs(gates) do
    local line = gate.line
    -- Unless nobody waits in this line, nor has its asker since before this draw.
    if is_behind and turn.turn_us < math.huge and (line.own.turn_name ~= '' or #line.others > 0) then
      local own = { order = turn.order, turn_us = turn.turn_us, due_us = turn.due_us, start_us = turn.start_us }
      add_needs(gate, wish, own, 1, left)
    end
    is_behind = is_behind or gate == after_gate
  end
end

-- A try that a key refuses is told of the limits that decide the slots instead if those refuse it for longer.
local function later_of_main(asked, granted)
  local main = asked.main
  local next_us = earliest_for_all_us(main.scope, asked.opens(), main.costs, main.drawer)
  if next_us == math.huge or next_us <= granted.not_before_us then return end
  local binding = binding_at(main)
  if binding > 0 then granted.not_before_us, granted.binds_at = next_us, binding end
end

-- Gives the asker a turn in the line of the key that holds its call back.
local function end_at_gate(serving, wish, gates, granted, deferred)
  local gate, left = deferred.gate, wish.wanted - granted.count
  local turn = { turn_us = deferred.until_us, due_us = deferred.until_us, start_us = deferred.start_us }
  turn.order = order_of_rest(wish, granted.count, serving.now_us)
  granted.not_before_us = deferred.until_us
  if not serving.is_try then
    add_needs(gate, wish, turn, 1, left)
    keep_behind(gates, gate, wish, turn, left)
  end
  local binding = binding_at(gate)
  -- If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
  local held = closed_by({ gate }, serving.now_us)
  if held == 0 then held = slowed_by({ gate }, serving.now_us) end
  granted.binds_at = binding > 0 and gate.after + binding or held
end

-- Why a wish got no more, and when to ask again.
local function end_wish(serving, wish, asked, granted, deferred)
  local left, main = wish.wanted - granted.count, asked.main
  if deferred then
    end_at_gate(serving, wish, asked.gates, granted, deferred)
    if serving.is_try then later_of_main(asked, granted) end
    return
  end
  if left == 0 then return end
  local turn, waits_for = refuse(serving, wish, main, granted, asked.opens(), asked.horizon_us)
  if not asked.is_alone and not main.line.refused then
    main.line.refused = { waits_for = waits_for, key = wish.keys[#wish.keys], not_before_us = asked.is_own and turn.turn_us or 0 }
  end
  if not serving.is_try then keep_behind(asked.gates, nil, wish, main.line.waiting[#main.line.waiting], left) end
  -- A try keeps no place, so the time to ask again goes here.
  if asked.is_own or serving.is_try then granted.not_before_us = turn.turn_us end
end

-- A refused try cannot pass before the last pause or cooldown ends, whatever else refused it.
local function until_open(serving, asked, granted)
  local fittings, open_us = { { scope = serving.bucket.shared, number = 0 }, unpack(asked.fittings) }, 0
  for _, fitting in ipairs(fittings) do open_us = math.max(open_us, closed_until_us(fitting.scope)) end
  local is_last = granted.not_before_us == math.huge or granted.not_before_us < open_us
  if open_us <= serving.now_us or not is_last then return end
  granted.not_before_us, granted.binds_at = open_us, closed_by(fittings, serving.now_us)
end

-- The scopes of the wish's keys; used up if Redis has lost them.
local function open_scopes(wish, now_us)
  local scopes = {}
  for index, key in ipairs(wish.keys) do
    scopes[index] = open_key(key, now_us)
    if key.is_lost then
      use_up(scopes[index], now_us)
      key.is_lost, key.is_used_up = false, true
    end
  end
  return scopes
end

-- What a wish has to fit: `main` decides its slots, and all gates must allow the very same ones.
local function fit_all(serving, wish, horizon_us)
  local shared, now_us, gates = serving.bucket.shared, serving.now_us, {}
  local key_scopes, after = open_scopes(wish, now_us), #shared.limits
  local is_own = after == 0 and #key_scopes > 0
  local asked = {
    gates = gates, is_own = is_own, is_alone = is_own and #key_scopes == 1, horizon_us = horizon_us, main = nil,
    fittings = nil, opens = nil,
  }
  for index, scope in ipairs(key_scopes) do
    local is_main = is_own and index == 1
    local fitting = fit(serving, wish, line_of(serving, scope, wish.places[index]), index, after, not is_main)
    if is_main then asked.main = fitting else gates[#gates + 1] = fitting end
    after = after + #scope.limits
  end
  asked.main = asked.main or fit(serving, wish, line_of(serving, shared, serving.own), 0, 0, false)
  asked.fittings = { asked.main, unpack(gates) }
  -- The earliest time at which anything may start; it moves with each booking.
  function asked.opens()
    local opens_us = opens_at_us(asked.main.scope, now_us, asked.main.step_us)
    return is_own and math.max(opens_us, opens_at_us(shared, now_us, asked.main.step_us)) or opens_us
  end
  return asked
end

local function serve(serving, wish)
  local now_us, horizon_us = serving.now_us, horizon_of(serving, wish.rank)
  local granted = { slots = {}, run = { count = 0, at_us = 0, excess = 0 }, not_before_us = 0, binds_at = 0, soonest_us = 0, count = 0 }
  local refused = wish.wanted > 0 and refused_before(serving, wish)
  if wish.wanted == 0 or refused then
    if refused then granted.not_before_us = refused.not_before_us end
    local told_scopes = wish.is_bounded and open_scopes(wish, now_us) or {}
    granted.soonest_us, granted.binds_at = soonest_unserved(serving, wish, told_scopes, horizon_us)
    return granted
  end
  local asked = fit_all(serving, wish, horizon_us)
  local main = asked.main
  -- Of a key's limits alone, each wish may have a whole share.
  local used = asked.is_alone and 0 or main.line.used
  -- A try waits for no turn, so the horizon is not shared out.
  local share_left = serving.is_try and wish.wanted or math.floor((1 - used) * main.share)
  local most = math.min(wish.wanted, math.max(used == 0 and 1 or 0, share_left))

  local recycled = serving.is_try and {} or take_holes(serving.bucket, wish.name, most, now_us + serving.horizon_us)
  local booking = {
    serving = serving, main = main, gates = asked.gates, fittings = asked.fittings, opens = asked.opens,
    most = most - #recycled, until_us = now_us + horizon_us,
  }
  local booked = is_runnable(booking) and book_run(booking) or is_at_once(booking) and book_at_once(booking)
    or book_list(booking)
  -- What was recycled was counted when it was booked.
  if #serving.shadows > 0 then
    local limit = main.scope.limits[1]
    local drain, step = limit and limit.count or 1, limit and main.costs[1] * limit.period_us or 0
    count_calls(serving.shadows, booked, wish.shadow_costs, drain, step, main.drawer)
  end
  for _, slot_us in ipairs(booked.slots) do recycled[#recycled + 1] = slot_us end
  granted.slots, granted.run, granted.count = recycled, booked, #recycled + booked.count
  if granted.count > 0 then
    serving.has_granted = true
    for _, fitting in ipairs(asked.fittings) do fitting.line.is_served = true end
    for _, key in ipairs(wish.keys) do key.is_drawn = true end
  end
  if not asked.is_alone then main.line.used = main.line.used + granted.count / main.share end

  end_wish(serving, wish, asked, granted, booked.deferred)
  if granted.count < wish.wanted then
    local soonest_us, binds_at = soonest_of(serving, asked)
    granted.soonest_us = soonest_us
    if binds_at ~= 0 then granted.binds_at = binds_at end
    if serving.is_try then until_open(serving, asked, granted) end
  end
  return granted
end

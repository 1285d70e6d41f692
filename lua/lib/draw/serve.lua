-- Serves the wishes of one draw, one after the other. Twin of src/core/draw/serve.ts.

-- Whether a wish needs of the shared limits what a wish before it waits for; others may fill what is left.
local function waits_with_refused(serving, wish)
  local refused, shared = serving.refused, serving.bucket.shared
  if not refused or serving.is_try then return false end
  if refused.waits_for > 0 and wish.costs[refused.waits_for] == 0 then return false end
  -- Calls of another key may not be let pass by that key: others do not wait for them.
  if wish.key ~= refused.key then return true end
  local line = line_of(serving, shared, serving.own)
  local main, last = fit(serving, wish, line, split(wish.costs, #shared.limits), false), line.waiting[#line.waiting]
  local turn = { turn_us = last.turn_us, due_us = last.due_us, start_us = last.start_us }
  turn.order = order_of_rest(wish, 0, serving.now_us)
  add_needs(main, wish, turn, math.min(wish.wanted, main.flow), wish.wanted)
  return true
end

-- Why a wish got no more, and when to ask again.
local function end_wish(serving, wish, asked, granted, booked)
  local shared, now_us, left = serving.bucket.shared, serving.now_us, wish.wanted - granted.count
  local main, key_fitting = asked.main, asked.key_fitting
  if booked.deferred_us then
    granted.not_before_us = booked.deferred_us
    local turn = { turn_us = booked.deferred_us, due_us = booked.deferred_us, start_us = booked.start_us }
    turn.order = order_of_rest(wish, granted.count, now_us)
    add_needs(key_fitting, wish, turn, 1, left)
    local binding, scope = binding_at(key_fitting), key_fitting.scope
    -- If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
    local held = closed_by(scope, scope, now_us)
    if held == 0 then held = slowed_by(scope, scope, now_us) end
    granted.binds_at = binding > 0 and #shared.limits + binding or held
    return
  end
  if left == 0 then return end
  local turn_us, waits_for = refuse(serving, wish, main, granted, asked.opens(), asked.horizon_us)
  if not asked.is_own and not serving.refused then serving.refused = { waits_for = waits_for, key = wish.key } end
  local key_line = key_fitting and key_fitting.line
  if key_line and turn_us < math.huge and (key_line.own.turn_name ~= '' or #key_line.others > 0) then
    -- It came to its key's gate, and the shared limits are used: others of its key must not pass it there meanwhile.
    local last = main.line.waiting[#main.line.waiting]
    local turn = { order = last.order, turn_us = last.turn_us, due_us = last.due_us, start_us = last.start_us }
    add_needs(key_fitting, wish, turn, 1, left)
  end
  -- A try keeps no place, so the time to ask again goes here.
  if asked.is_own or serving.is_try then granted.not_before_us = turn_us end
end

-- A refused try cannot pass before the last pause or cooldown ends, whatever else refused it.
local function until_open(serving, wish, granted)
  local shared = serving.bucket.shared
  local own = wish.key and open_key(wish.key, serving.now_us) or shared
  local open_us = math.max(closed_until_us(shared), closed_until_us(own))
  local is_last = granted.not_before_us == math.huge or granted.not_before_us < open_us
  if open_us <= serving.now_us or not is_last then return end
  granted.not_before_us, granted.binds_at = open_us, closed_by(shared, own, serving.now_us)
end

-- The scope of the wish's key; used up if Redis has lost it. nil if the key has no limits of its own.
local function scope_of_key(wish, now_us)
  local key_scope = wish.key and open_key(wish.key, now_us)
  if key_scope and wish.key.is_lost then
    use_up(key_scope, now_us)
    wish.key.is_lost, wish.key.is_used_up = false, true
  end
  return key_scope
end

local function serve(serving, wish)
  local shared, now_us = serving.bucket.shared, serving.now_us
  local granted = { slots = {}, run = { count = 0, at_us = 0, excess = 0 }, not_before_us = 0, binds_at = 0, soonest_us = 0, count = 0 }
  local horizon_us = horizon_of(serving, wish.rank)
  if wish.wanted == 0 or waits_with_refused(serving, wish) then
    local told_scope = wish.is_bounded and scope_of_key(wish, now_us) or nil
    granted.soonest_us, granted.binds_at = soonest_unserved(serving, wish, told_scope, horizon_us)
    return granted
  end
  local key_scope = scope_of_key(wish, now_us)
  local is_own = key_scope ~= nil and #shared.limits == 0

  local shared_costs, key_costs = split(wish.costs, #shared.limits)
  local key_line = key_scope and line_of(serving, key_scope, wish.place)
  local main = is_own and fit(serving, wish, key_line, wish.costs, false)
    or fit(serving, wish, line_of(serving, shared, serving.own), shared_costs, false)
  local key_fitting = key_line and not is_own and fit(serving, wish, key_line, key_costs, true) or nil
  local used = is_own and 0 or serving.used
  -- A try waits for no turn, so the horizon is not shared out.
  local share_left = serving.is_try and wish.wanted or math.floor((1 - used) * main.share)
  local most = math.min(wish.wanted, math.max(used == 0 and 1 or 0, share_left))
  local function opens()
    local opens_us = opens_at_us(main.scope, now_us, main.step_us)
    return is_own and math.max(opens_us, opens_at_us(shared, now_us, main.step_us)) or opens_us
  end

  local recycled = serving.is_try and {} or take_holes(serving.bucket, wish.name, most, now_us + serving.horizon_us)
  local booking = {
    serving = serving, main = main, key_fitting = key_fitting, opens = opens, most = most - #recycled,
    until_us = now_us + horizon_us,
  }
  local booked = is_runnable(booking) and book_run(booking) or is_at_once(booking) and book_at_once(booking)
    or book_list(booking)
  for _, slot_us in ipairs(booked.slots) do recycled[#recycled + 1] = slot_us end
  granted.slots, granted.run, granted.count = recycled, booked, #recycled + booked.count
  if granted.count > 0 then
    serving.has_granted, main.line.is_served = true, true
    if key_fitting then key_line.is_served = true end
    if wish.key then wish.key.is_drawn = true end
  end
  if not is_own then serving.used = serving.used + granted.count / main.share end

  local asked = { main = main, key_fitting = key_fitting, is_own = is_own, opens = opens, horizon_us = horizon_us }
  end_wish(serving, wish, asked, granted, booked)
  if granted.count < wish.wanted then
    local soonest_us, binds_at = soonest_of(serving, asked)
    granted.soonest_us = soonest_us
    if binds_at ~= 0 then granted.binds_at = binds_at end
    if serving.is_try then until_open(serving, wish, granted) end
  end
  return granted
end

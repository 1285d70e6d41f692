-- Serves the wishes of one draw, one after the other. Twin of src/core/draw/serve.ts.

local function serve_one(serving, wish)
  local shared, now_us = serving.bucket.shared, serving.now_us
  local granted = { slots = {}, run = { count = 0, at_us = 0, excess = 0 }, not_before_us = 0, binds_at = 0,
    place = wish.place, count = 0 }
  if serving.refused_place and not serving.is_try then return granted end
  local key_scope = wish.key and open_key(wish.key, now_us)
  if key_scope and wish.key.is_lost then
    use_up(key_scope, now_us)
    wish.key.is_lost, wish.key.is_used_up = false, true
  end
  local is_own = key_scope ~= nil and #shared.limits == 0

  local shared_costs, key_costs = split(wish.costs, #shared.limits)
  local main = is_own and fit(serving, wish.rank, key_scope, wish.costs, wish.place)
    or fit(serving, wish.rank, shared, shared_costs, serving.own)
  local key_fitting = key_scope and not is_own and fit(serving, wish.rank, key_scope, key_costs, wish.place) or nil
  local claim, used = main.claim, is_own and 0 or serving.used
  -- A try waits for no turn, so the horizon is not shared out.
  local share_left = serving.is_try and wish.wanted or math.floor((1 - used) * claim.share)
  local most = math.min(wish.wanted, math.max(used == 0 and 1 or 0, share_left))
  local horizon_us = math.floor((serving.horizon_us * serving.shares[wish.rank + 1]) / 1000)
  local own_turn_us = main.own.turn_us >= serving.since_us and main.own.turn_us or nil
  local ahead = slots_before(main.scope, claim, main.own, own_turn_us or math.huge)
  local function opens()
    local opens_us = opens_at_us(main.scope, now_us, main.step_us)
    return is_own and math.max(opens_us, opens_at_us(shared, now_us, main.step_us)) or opens_us
  end

  local recycled = serving.is_try and {} or take_holes(serving.bucket, wish.name, most, now_us + serving.horizon_us)
  local booking = {
    serving = serving, main = main, key_fitting = key_fitting, opens = opens, ahead = ahead, most = most - #recycled,
    until_us = now_us + horizon_us - math.floor(ahead * main.step_us),
  }
  local booked = is_runnable(booking) and book_run(booking) or is_at_once(booking) and book_at_once(booking)
    or book_list(booking)
  for _, slot_us in ipairs(booked.slots) do recycled[#recycled + 1] = slot_us end
  granted.slots, granted.run, granted.count = recycled, booked, #recycled + booked.count
  if granted.count > 0 then
    serving.has_granted = true
    if wish.key then wish.key.is_drawn = true end
  end
  if not is_own then serving.used = serving.used + granted.count / claim.share end

  if booked.deferred_us then
    granted.not_before_us = booked.deferred_us
    granted.place = settle_place(serving, key_fitting, booked.deferred_us, granted.count > 0)
    local binding, scope = binding_at(key_fitting), key_fitting.scope
    -- If no limit of the key holds the call back, a cooldown, a pause or a gap of the key does.
    local held = closed_by(scope, scope, now_us)
    if held == 0 then held = slowed_by(scope, scope, now_us) end
    granted.binds_at = binding > 0 and #shared.limits + binding or held
    return granted
  end
  granted.place = key_fitting and settle_place(serving, key_fitting, 0, true) or NO_PLACE
  if granted.count == wish.wanted then
    if is_own then granted.place = settle_place(serving, main, 0, true) end
    return granted
  end
  local place, turn_us = refuse(serving, wish, main, granted, opens(), horizon_us, ahead, own_turn_us)
  if is_own then granted.place = place else serving.refused_place = place end
  -- A try keeps no place, so the time to ask again goes here.
  if is_own or serving.is_try then granted.not_before_us = turn_us end
  return granted
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

-- A key keeps one place, so each of its wishes continues from the place that the one before left.
local function serve(serving, wish)
  if wish.key and wish.key.place then wish.place = wish.key.place end
  local granted = serve_one(serving, wish)
  if serving.is_try and granted.count < wish.wanted then until_open(serving, wish, granted) end
  if wish.key then wish.key.place = granted.place end
  return granted
end

-- The place of the wishes that did not fit into the bucket; none if all did.
local function end_serving(serving, last_wish)
  if serving.refused_place then return serving.refused_place end
  local costs = split(last_wish.costs, #serving.bucket.shared.limits)
  return settle_place(serving, fit(serving, last_wish.rank, serving.bucket.shared, costs, serving.own), 0, true)
end

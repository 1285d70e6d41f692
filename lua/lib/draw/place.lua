-- Where a wish has to fit, and what place its asker keeps when it does not. Twin of src/core/place.ts and refuse.ts.
local NO_PLACE = { turn_us = 0, turn_name = '', since_us = 0 }

local function fitting(serving, rank, scope, costs, own)
  local step_us = step_of(scope.limits, costs)
  local share = share_of(room_of(scope.limits, costs, serving.horizon_us), serving.alive)
  local is_costly = false
  for _, cost in ipairs(costs) do is_costly = is_costly or cost > 1 end
  return {
    scope = scope, costs = costs, step_us = step_us, own = own,
    claim = {
      asker = serving.asker, rank = rank, step_us = math.max(1, math.ceil(step_us)), share = share,
      is_costly = is_costly, since_us = serving.since_us,
    },
    drawer = {
      asker = serving.asker, now_us = serving.now_us, since_us = own.since_us, lease = serving.lease,
    },
  }
end

local function binding_at(f)
  return binding_of(f.scope, opens_at_us(f.scope, f.drawer.now_us, f.step_us), f.costs, f.drawer)
end

-- Until when a cooldown or a pause lets nothing start.
local function shut_us(scope)
  return math.max(scope.cool_until_us, scope.paused_until_us)
end

-- Whether a cooldown (-1) or a pause (-2) lets nothing start until after this time, of the bucket or its key; 0: neither.
local function shut_by(shared, own, until_us)
  local paused_us = math.max(shared.paused_until_us, own.paused_until_us)
  local cool_us = math.max(shared.cool_until_us, own.cool_until_us)
  if math.max(paused_us, cool_us) <= until_us then return 0 end
  return paused_us >= cool_us and -2 or -1
end

-- Whether answers have slowed the rate of the bucket or its key (-3); 0: neither.
local function slowed_by(shared, own, now_us)
  return (keeps_gap(shared, now_us) or keeps_gap(own, now_us)) and -3 or 0
end

-- Keeps the asker's place in a scope until turn_us: 0 if it has got all, math.huge if nobody can tell.
local function settle_place(serving, f, turn_us, is_served)
  if serving.is_try then return NO_PLACE end
  local is_blocked, since_us = turn_us == math.huge, 0
  if is_blocked then since_us = (is_served or f.own.since_us == 0) and serving.now_us or f.own.since_us end
  for _, limit in ipairs(f.scope.limits) do
    local rule = RULES[limit.code]
    if rule.leave_place and f.own.since_us > 0 and f.own.since_us ~= since_us then
      rule.leave_place(limit, f.drawer)
    end
    if rule.keep_place and since_us > 0 then
      rule.keep_place(limit, { asker = serving.asker, now_us = serving.now_us, since_us = since_us })
    end
  end
  local kept_us = is_blocked and 0 or turn_us
  local name = keep_turn(f.scope, f.claim, f.own, kept_us, serving.is_new_window, serving.now_us)
  return { turn_us = kept_us, turn_name = name, since_us = since_us }
end

local function split(costs, at)
  local first, rest = {}, {}
  for index, cost in ipairs(costs) do
    if index <= at then first[index] = cost else rest[index - at] = cost end
  end
  return first, rest
end

-- What could not be granted of a wish waits for its turn.
local function refuse(serving, wish, main, granted, opens_us, horizon_us, ahead, own_turn_us)
  local left, claim = wish.wanted - granted.count, main.claim
  local next_us = agree_us(main.scope, opens_us, main.costs, main.drawer)
  local before = ahead
  if serving.has_granted and own_turn_us then before = slots_before(main.scope, claim, main.own, math.huge) end
  -- A try is told when the first of those refused may come; others wait for as many as they may have.
  local needed = before + (serving.is_try and 1 or math.min(left, claim.share))
  -- So many may come at once, when there is room for them; the rest come one after the other.
  local together = math.min(needed, most_of(main))
  local room_us = agree_us(main.scope, opens_us, times(main.costs, together), main.drawer)
  -- Of leases, nobody can tell when several come free.
  if room_us == math.huge then room_us = next_us end
  local turn_us = math.max(serving.now_us, room_us + math.floor((needed - together) * main.step_us) - horizon_us)
  -- Whoever only looks in keeps its turn: reckoned anew behind all who came since, it would never come.
  if granted.count == 0 and main.own.turn_us > serving.now_us and turn_us ~= math.huge then
    turn_us = math.min(turn_us, main.own.turn_us)
  end
  local shared, scope, kept_us = serving.bucket.shared, main.scope, turn_us
  -- A bucket whose limits are all per key can be opened any time: a turn behind that would keep the key shut.
  local is_bucket_shut = scope ~= shared and shut_us(shared) > serving.now_us + horizon_us
  if is_bucket_shut and turn_us ~= math.huge then kept_us = 0 end
  local place = settle_place(serving, main, kept_us, granted.count > 0)
  granted.binds_at = shut_by(shared, scope, serving.now_us + horizon_us)
  if granted.binds_at == 0 and next_us > serving.now_us + horizon_us then
    local binding = binding_at(main)
    granted.binds_at = binding > 0 and binding or slowed_by(shared, scope, serving.now_us)
  end
  return place, turn_us
end

-- Whether a wish fits into a scope, and the place that its asker keeps there if it does not.
-- Twin of src/core/draw/place.ts.
local NO_PLACE = { turn_us = 0, turn_name = '', since_us = 0 }

-- What a wish needs of a scope.
local function fit(serving, rank, scope, costs, own)
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

-- The number, from 1 on, of the limit that holds the next call back; 0: none does.
local function binding_at(fitting)
  local opens_us = opens_at_us(fitting.scope, fitting.drawer.now_us, fitting.step_us)
  return binding_of(fitting.scope, opens_us, fitting.costs, fitting.drawer)
end

-- Until when a cooldown or a pause lets nothing start.
local function closed_until_us(scope)
  return math.max(scope.cool_until_us, scope.paused_until_us)
end

-- Whether a cooldown (-1) or a pause (-2), of the bucket or its key, lets nothing start until after this time; 0: neither.
local function closed_by(shared, own, until_us)
  local paused_us = math.max(shared.paused_until_us, own.paused_until_us)
  local cool_us = math.max(shared.cool_until_us, own.cool_until_us)
  if math.max(paused_us, cool_us) <= until_us then return 0 end
  return paused_us >= cool_us and -2 or -1
end

-- Whether answers have slowed the rate of the bucket or its key (-3); 0: neither.
local function slowed_by(shared, own, now_us)
  return (keeps_gap(shared, now_us) or keeps_gap(own, now_us)) and -3 or 0
end

-- Keeps the asker's place in a scope until turn_us: 0 if it got all it wanted, math.huge if the time of its turn is unknown.
local function settle_place(serving, fitting, turn_us, is_served)
  if serving.is_try then return NO_PLACE end
  local is_blocked, since_us = turn_us == math.huge, 0
  if is_blocked then since_us = (is_served or fitting.own.since_us == 0) and serving.now_us or fitting.own.since_us end
  for _, limit in ipairs(fitting.scope.limits) do
    local rule = RULES[limit.code]
    if rule.leave_place and fitting.own.since_us > 0 and fitting.own.since_us ~= since_us then
      rule.leave_place(limit, fitting.drawer)
    end
    if rule.keep_place and since_us > 0 then
      rule.keep_place(limit, { asker = serving.asker, now_us = serving.now_us, since_us = since_us })
    end
  end
  local kept_us = is_blocked and 0 or turn_us
  local name = keep_turn(fitting.scope, fitting.claim, fitting.own, kept_us, serving.is_new_window, serving.now_us)
  return { turn_us = kept_us, turn_name = name, since_us = since_us }
end

-- The costs under the shared limits, and those under the limits of the key.
local function split(costs, at)
  local first, rest = {}, {}
  for index, cost in ipairs(costs) do
    if index <= at then first[index] = cost else rest[index - at] = cost end
  end
  return first, rest
end

local function times(costs, count)
  local all = {}
  for index, cost in ipairs(costs) do all[index] = cost * count end
  return all
end

-- The most calls that may start at once, where no limit bounds them.
local MOST_TOGETHER = 1000000

-- How many such calls the capacities allow at once.
local function most_of(fitting)
  local most = MOST_TOGETHER
  for index, limit in ipairs(fitting.scope.limits) do
    if fitting.costs[index] > 0 and RULES[limit.code].is_rate then
      most = math.min(most, math.floor(limit.capacity / fitting.costs[index]))
    end
  end
  return most
end

-- Gives the asker a turn for the rest of a wish.
local function refuse(serving, wish, main, granted, opens_us, horizon_us, ahead, own_turn_us)
  local left, claim = wish.wanted - granted.count, main.claim
  local next_us = earliest_for_all_us(main.scope, opens_us, main.costs, main.drawer)
  local before = ahead
  if serving.has_granted and own_turn_us then before = slots_before(main.scope, claim, main.own, math.huge) end
  -- A try asks again for one call; an asker that waits comes for as many calls as it may have.
  local needed = before + (serving.is_try and 1 or math.min(left, claim.share))
  -- These may come at once, when there is room for all of them; the rest come one after the other.
  local together = math.min(needed, most_of(main))
  local room_us = earliest_for_all_us(main.scope, opens_us, times(main.costs, together), main.drawer)
  -- When several leases come free is unknown; when the next slot comes may still be known.
  if room_us == math.huge then room_us = next_us end
  local turn_us = math.max(serving.now_us, room_us + math.floor((needed - together) * main.step_us) - horizon_us)
  -- An asker that comes before its turn keeps it: a new turn, behind all that came since, would never arrive.
  if granted.count == 0 and main.own.turn_us > serving.now_us and turn_us ~= math.huge then
    turn_us = math.min(turn_us, main.own.turn_us)
  end
  local shared, scope, kept_us = serving.bucket.shared, main.scope, turn_us
  -- In a bucket with limits per key only, a pause may end any time: a turn after it would keep the key waiting.
  local is_bucket_closed = scope ~= shared and closed_until_us(shared) > serving.now_us + horizon_us
  if is_bucket_closed and turn_us ~= math.huge then kept_us = 0 end
  local place = settle_place(serving, main, kept_us, granted.count > 0)
  granted.binds_at = closed_by(shared, scope, serving.now_us + horizon_us)
  if granted.binds_at == 0 and next_us > serving.now_us + horizon_us then
    local binding = binding_at(main)
    granted.binds_at = binding > 0 and binding or slowed_by(shared, scope, serving.now_us)
  end
  return place, turn_us
end

-- Decides whether a slot request fits into a scope, and which position its replica keeps there if it does not fit.
local NO_POSITION = { turn_us = 0, since_us = 0, lease_order = 0 }
local NOTHING = {}

-- Returns how far ahead slots for this rank may be booked, in us.
local function horizon_of(serving, rank)
  return math.floor((serving.horizon_us * serving.shares[rank + 1]) / 1000)
end

-- Returns the line of a scope, and reads it on first use. The line has the pending turns of other replicas, and what
-- this replica waits for, by rank.
local function line_of(serving, scope, own)
  local line = scope.line
  if not line then
    local turns = read_turns(scope, serving.missed_us)
    local others, are_fair = NO_TURNS, false
    if turns ~= NO_TURNS then others, are_fair = others_of(turns, serving.asker, #scope.limits, serving.is_fair) end
    serving.are_others_fair = serving.are_others_fair or are_fair
    line = {
      scope = scope, own = own, turns = turns,
      others = others,
      waiting = NOTHING, slices = NOTHING, used = 0, needed = 0, keys = {}, refused = nil, position = nil,
    }
    scope.line = line
  end
  return line
end

-- Adds an amount that the replica waits for in a line.
local function add_need(line, need)
  if line.waiting == NOTHING then line.waiting = {} end
  line.waiting[#line.waiting + 1] = need
end

-- The most that a call's arrival may lie in the future: calls that arrived together are ordered one after the other.
local MOST_AHEAD_US = 1000000

-- Returns the time at which a call began to wait; now, if the request does not say.
local function since_of(since_us, now_us)
  return since_us == 0 and now_us or math.min(since_us, now_us + MOST_AHEAD_US)
end

-- Returns the time at which a replica began to wait for its turn. Without a turn it is math.huge, so that the replica
-- comes last among equals.
local function turn_since_of(position)
  return position.since_us > 0 and position.since_us or math.huge
end

-- Returns the amounts that come before calls of this order: those of other replicas, and of this replica's earlier
-- slot requests. Among equal turns, the replica that has waited longer is first.
local function ahead_in(line, order, since_us)
  local turns, limit_count = line.others, #line.scope.limits
  if #line.waiting == 0 then return #turns == 0 and NOTHING or ahead_of(turns, order, since_us, limit_count) end
  turns = { unpack(turns) }
  for _, need in ipairs(line.waiting) do
    turns[#turns + 1] = { since_us = 0, start_us = need.start_us, needs = { need } }
  end
  return ahead_of(turns, order, since_us, limit_count)
end

-- The most calls in one horizon if no limit applies.
local MOST_ROOM = 1000000

-- Returns how long one call of these costs uses up the limits, how many calls of a horizon each replica may have, and
-- how many of these do not need a burst.
local function sizes_of(serving, limits, costs)
  local step_us, calls, flow, horizon_us = 0, MOST_ROOM, MOST_ROOM, serving.horizon_us
  for index = 1, #limits do
    local limit, cost = limits[index], costs[index]
    if not RULES[limit.code].is_rate then
      if limit.capacity < calls then calls = limit.capacity end
      if limit.capacity < flow then flow = limit.capacity end
    elseif cost > 0 and not RULES[limit.code].is_budget then
      local each = cost * limit.period_us
      local in_horizon = (horizon_us * limit.count) / each
      step_us = math.max(step_us, each / limit.count)
      calls = math.min(calls, limit.capacity / cost + in_horizon)
      flow = math.min(flow, 1 + in_horizon)
    end
  end
  local share = share_of(math.floor(calls), serving.sharers)
  return step_us, share, math.min(share, share_of(math.floor(flow), serving.sharers))
end

-- Sets the results of sizes_of on a class of calls, once per class. All calls of a class have the same limits and
-- costs.
local function size_class(serving, limits, class)
  if serving.pool then return serving.pool.size(serving, class) end
  if not class.flow then class.step_us, class.share, class.flow = sizes_of(serving, limits, class.costs) end
end

-- Returns the slice that is being served. Returns nil for tries and after a refusal, because each slot request is
-- then checked by its own order.
local function slice_of(serving, line, rank)
  return not serving.is_try and not line.refused and line.slices[rank]
end

-- Where keys take turns, calls ahead also come first for leases. Stores how many leases they need.
local function count_leases_ahead(scope, sums)
  for index, limit in ipairs(scope.limits) do
    if RULES[limit.code].keep_position then limit.before = sums[index] end
  end
end

-- Describes a slot request under the scope that decides its slots: the shared scope (number 0), or its widest key (1).
local function fit(serving, slot_request, line, number)
  local scope, now_us, rank, class = line.scope, serving.now_us, slot_request.rank, slot_request.class
  -- Where keys take turns, different calls are ahead of each slot request.
  local slice = not serving.is_fair and slice_of(serving, line, slot_request.slice)
  -- Calls of one class in one slice have the same result.
  local main = slice and class.rank == rank and class.main
  if main and main.line == line then return main end
  size_class(serving, scope.limits, class)
  local fair, ahead = serving.fair, nil
  if fair then
    fair.functions.pass_turns(serving, serving.drawer.order, slot_request.since_us)
    count_leases_ahead(scope, fair.sums)
    ahead, main = fair.ahead, class.rank == rank and class.main
    if main and main.line == line and main.ahead == ahead then return main end
  else
    ahead = slice and slice.ahead or ahead_in(line, serving.drawer.order, turn_since_of(line.own))
  end
  if not slice and not line.slices[slot_request.slice] then
    if line.slices == NOTHING then line.slices = {} end
    line.slices[slot_request.slice] = { first = slot_request.index, ahead = ahead }
  end
  main = {
    scope = scope, number = number, line = line, costs = slot_request.class.costs, after = 0, step_us = class.step_us, share = class.share,
    flow = class.flow, drawer = serving.drawer, until_us = now_us + horizon_of(serving, rank), ahead = ahead, fair = fair,
  }
  if slice or fair then class.rank, class.main = rank, main end
  return main
end

-- Does the same as fit for a further key. The costs for this key's limits come after the first `after` costs. Such a
-- key books nothing ahead, so it delays no earlier call and has no share. The key has no line until a replica waits
-- for it.
local function fit_gate(serving, slot_request, scope, number, after, own)
  local line, ahead, drawer = scope.line, NOTHING, serving.gate_drawer or serving.drawer
  if not line and (own ~= NO_POSITION or scope.turns_until_us >= serving.missed_us) then line = line_of(serving, scope, own) end
  if line and (#line.others > 0 or #line.waiting > 0) then ahead = ahead_in(line, drawer.order, turn_since_of(line.own)) end
  scope.is_looked_at = true
  return {
    scope = scope, number = number, costs = slot_request.class.costs, after = after,
    step_us = scope.factor < 1000 and step_of(scope.limits, slot_request.class.costs, after) or 0,
    drawer = drawer, until_us = serving.now_us, ahead = ahead,
  }
end

-- The most slots in a list, because a script cannot reply with thousands of values.
local MOST_LISTED = 1000

-- Returns the earliest time at which a call may start. This time moves with each booking.
local function main_opens_us(serving, main)
  local opens_us, shared = opens_at_us(main.scope, serving.now_us, main.step_us), serving.bucket.shared
  if main.scope == shared then return opens_us end
  return math.max(opens_us, opens_at_us(shared, serving.now_us, main.step_us))
end

-- Returns the number of the limit that delays the next call, from 1 on; 0 if no limit delays it.
local function binding_at(fitting)
  local opens_us = opens_at_us(fitting.scope, fitting.drawer.now_us, fitting.step_us)
  return binding_of(fitting.scope, opens_us, fitting.costs, fitting.after, fitting.drawer)
end

-- Returns when the current cooldown or pause ends, whichever is later.
local function closed_until_us(scope)
  return math.max(scope.cool_until_us, scope.paused_until_us)
end

-- Encodes the cause of a delay for a reply if the cause is not a limit: a cooldown, a pause, or a rate that responses
-- have slowed. `number` is the number of the scope that has this cause.
local COOLING, PAUSED, SLOWED, CAUSES = -1, -2, -3, 3
local function bound_by(cause, number)
  return cause - CAUSES * number
end

-- Returns the cooldown or pause of these fittings that ends last, if it lasts beyond this time; 0 if there is none.
local function closed_by(fittings, until_us)
  local latest_us, binds_at = until_us, 0
  for _, fitting in ipairs(fittings) do
    local scope, closed_us = fitting.scope, closed_until_us(fitting.scope)
    if closed_us > latest_us then
      local cause = scope.paused_until_us >= scope.cool_until_us and PAUSED or COOLING
      latest_us, binds_at = closed_us, bound_by(cause, fitting.number)
    end
  end
  return binds_at
end

-- Returns the first of these fittings with a rate that responses have slowed; 0 if there is none.
local function slowed_by(fittings, now_us)
  for _, fitting in ipairs(fittings) do
    if keeps_gap(fitting.scope, now_us) then return bound_by(SLOWED, fitting.number) end
  end
  return 0
end

-- Stores the replica's position in a line, with all amounts that the replica waits for there. If it waits for nothing,
-- removes the position.
local function settle_line(serving, line)
  if serving.is_try then return NO_POSITION end
  local scope, own, lease_order, turn, turn_us = line.scope, line.own, 0, nil, 0
  if #line.waiting == 0 and own == NO_POSITION then return NO_POSITION end
  for _, need in ipairs(line.waiting) do
    local needs_lease = need.turn_us == math.huge
    if needs_lease and lease_order == 0 then lease_order = need.order end
    if need.due_us > 0 and (not needs_lease or need.names) then
      -- A replica that was just served comes after replicas that drew at the same moment.
      local since_us = scope.is_served and serving.now_us + 1 or math.min(serving.now_us, turn_since_of(own))
      turn = turn or { asker = serving.asker, since_us = since_us, due_us = need.due_us, start_us = need.start_us, needs = {} }
      turn.due_us = math.min(turn.due_us, need.due_us)
      if not needs_lease then turn_us = turn_us == 0 and need.turn_us or math.min(turn_us, need.turn_us) end
      turn.needs[#turn.needs + 1] = need
    end
  end
  -- Where keys take turns, order_waiters stores the position of a replica that waits.
  local is_placed_later = lease_order > 0 and turn and turn.needs[1].names
  if not is_placed_later and (lease_order > 0 or own.lease_order > 0) then
    for _, limit in ipairs(scope.limits) do
      local rule = RULES[limit.code]
      if rule.leave_position and own.lease_order > 0 and own.lease_order ~= lease_order then
        rule.leave_position(limit, { asker = serving.asker, now_us = serving.now_us, order = own.lease_order })
      end
      if rule.keep_position and lease_order > 0 then
        rule.keep_position(limit, { asker = serving.asker, now_us = serving.now_us, order = lease_order })
      end
    end
  end
  local since_us = keep_turn(scope, line.turns, serving.asker, own.since_us, turn, serving.now_us)
  return { turn_us = turn_us, since_us = since_us, lease_order = lease_order }
end

-- Returns the order of the calls of a slot request that were not served. Assumes that the calls arrived at even
-- intervals.
local function order_of_rest(slot_request, served, now_us)
  local first_us = since_of(slot_request.since_us, now_us)
  if served == 0 then return order_of(slot_request.rank, first_us) end
  local next_us = math.max(first_us, since_of(slot_request.next_since_us, now_us))
  local last_us = math.max(next_us, since_of(slot_request.last_since_us, now_us))
  return order_of(slot_request.rank, next_us + math.floor(((last_us - next_us) * (served - 1)) / slot_request.wanted))
end

-- Returns the order of a turn: calls within the floor of their key (1) go before all other turns (2).
local function turn_order(first, tag, rank)
  if first == 1 then return RANK_STEP + math.floor(tag) end
  return 2 * RANK_STEP + math.floor(tag) * 4 + rank
end

-- Returns the order in the line of the limits that decide slots: by turns in a fair bucket, otherwise by arrival.
local function line_order(serving, slot_request, served)
  if served == 0 and slot_request.key then return slot_request.key end
  if not slot_request.first or slot_request.first == 0 then return order_of_rest(slot_request, served, serving.now_us) end
  if slot_request.first == 1 then return turn_order(1, slot_request.tag + served * slot_request.floor_us, slot_request.rank) end
  local weight = slot_request.weights and slot_request.weights[1] or 1
  return turn_order(2, slot_request.tag + served * slot_request.class.turn_us / weight, slot_request.rank)
end

-- Returns the drawer for the lines of a call's keys. There, calls of a fair bucket are ordered by arrival.
local function gate_drawer_of(serving, slot_request)
  local drawer = serving.gate_drawer or { asker = serving.asker, now_us = serving.now_us, order = 0, lease = 0 }
  drawer.order = order_of_rest(slot_request, 0, serving.now_us)
  return drawer
end

-- Returns the total costs of `count` calls under the limits of a fitting.
local function times(fitting, count)
  local all, costs, after = {}, fitting.costs, fitting.after
  for index = 1, #fitting.scope.limits do all[index] = costs[after + index] * count end
  return all
end

-- True if booking this many calls at once delays none of the calls ahead of them.
local function delays_none(fitting, count)
  if fitting.fair and fitting.fair.functions.most_in_turn(fitting.fair, fitting, count) < count then return false end
  if #fitting.ahead == 0 then return true end
  local opens_us = opens_at_us(fitting.scope, fitting.drawer.now_us, fitting.step_us)
  local all = times(fitting, count)
  for _, before in ipairs(fitting.ahead) do
    if not is_in_time(fitting.scope, before, all, opens_us, fitting.until_us) then return false end
  end
  return true
end

-- Returns the time at which this amount could start after all amounts ahead of it, and the number of the limit that
-- decides, from 1 on.
local function turn_of(fitting, ahead, opens_us, all)
  local sums = NOTHING
  for _, before in ipairs(ahead) do
    if not is_in_time(fitting.scope, before, all, opens_us, fitting.until_us) then sums = before.sums end
  end
  local start_us, binding = opens_us, 0
  for index, limit in ipairs(fitting.scope.limits) do
    if all[index] > 0 and RULES[limit.code].is_rate then
      local room_us = room_at_us(limit, opens_us, (sums[index] or 0) + all[index])
      if room_us > start_us then start_us, binding = room_us, index end
    end
  end
  return start_us, binding
end

-- True if all rate limits that such a call uses drain evenly.
local function gives_evenly(fitting)
  for index, limit in ipairs(fitting.scope.limits) do
    local rule = RULES[limit.code]
    if fitting.costs[fitting.after + index] > 0 and rule.is_rate and not rule.does_drain then return false end
  end
  return true
end

-- Returns the next slot request that is served together with this one, from the same line and in the same slice.
local function next_follower(serving, from, slot_request)
  local slot_requests, own = serving.slot_requests, #serving.bucket.shared.limits == 0 and slot_request.keys[1]
  while slot_requests[from] and slot_requests[from].slice == slot_request.slice do
    local each = slot_requests[from]
    if each.wanted > 0 and (not own or each.keys[1] == own) and (own or #serving.bucket.shared.limits > 0 or not each.keys[1]) then
      return each
    end
    from = from + 1
  end
end

-- Returns the amount that a replica will ask for at its turn: `left` calls of this slot request and the following
-- ones, up to a horizon. The calls served in this draw count again, because about as many calls arrive until the
-- turn. Counting all pending calls instead would make later replicas draw too early.
local function amounts_of_slice(serving, main, slot_request, left)
  local limits, amounts, used = main.scope.limits, {}, 0
  for index = 1, #limits do amounts[index] = 0 end
  local function add(class, count)
    if used >= 1 or count == 0 then return end
    size_class(serving, limits, class)
    local flow = class.flow
    local taken = math.min(count, math.max(used == 0 and 1 or 0, math.floor((1 - used) * flow)))
    for index = 1, #limits do amounts[index] = amounts[index] + taken * class.costs[index] end
    used = used + (taken < count and 1 or taken / flow)
  end
  add(slot_request.class, left)
  if not gives_evenly(main) then
    add(slot_request.class, slot_request.wanted - left)
    return amounts, used >= 1
  end
  local each = next_follower(serving, slot_request.index + 1, slot_request)
  while each and used < 1 do
    add(each.class, each.wanted)
    each = next_follower(serving, each.index + 1, slot_request)
  end
  local slice = main.line.slices[slot_request.slice]
  each = slice and next_follower(serving, slice.first, slot_request)
  while each and each ~= slot_request and used < 1 do
    add(each.class, each.wanted)
    each = next_follower(serving, each.index + 1, slot_request)
  end
  add(slot_request.class, slot_request.wanted - left)
  return amounts, used >= 1
end

-- If the calls of a slot request arrived within this time, they are served one after the other.
local RUN_US = 50000

local function turn_like(turn, order, amounts, slot_request)
  return {
    order = order, turn_us = turn.turn_us, due_us = turn.due_us, start_us = turn.start_us, amounts = amounts,
    call_since_us = slot_request.since_us,
  }
end

-- Adds the needs of the calls that arrived together with the first calls of a slot request.
local function add_rest(line, fitting, slot_request, turn, amounts, count)
  if slot_request.last_since_us - slot_request.since_us >= RUN_US then return end
  local rest, is_some = {}, false
  for index = 1, #amounts do
    rest[index] = math.max(0, slot_request.class.costs[fitting.after + index] * count - amounts[index])
    is_some = is_some or rest[index] > 0
  end
  if is_some then add_need(line, turn_like(turn, turn.order, rest, slot_request)) end
end

-- Adds the unserved calls of a slot request to a gate: one call. If limits do not drain evenly, also adds the calls
-- that arrived with it.
local function add_to_gate(serving, gate, slot_request, turn, left)
  local amounts, line = times(gate, 1), line_of(serving, gate.scope, NO_POSITION)
  add_need(line, turn_like(turn, turn.order, amounts, slot_request))
  if not gives_evenly(gate) then add_rest(line, gate, slot_request, turn, amounts, left) end
end

-- Stores a position for a slice that a replica waits for in a line. If limits do not drain evenly, many units come
-- back at one moment for all waiting calls. Then each slot request has a separate position.
local function wait_for(serving, main, slot_request, left, turn, amounts)
  local line = main.line
  add_need(line, turn_like(turn, turn.order, amounts, slot_request))
  if gives_evenly(main) then return end
  add_rest(line, main, slot_request, turn, amounts, left)
  local each = next_follower(serving, slot_request.index + 1, slot_request)
  while each and #line.waiting < MOST_NEEDS do
    local order = line_order(serving, each, 0)
    size_class(serving, main.scope.limits, each.class)
    local count, first = math.min(each.wanted, each.class.flow), {}
    for index = 1, #main.scope.limits do first[index] = each.class.costs[index] * count end
    local own = turn_like(turn, order, first, each)
    add_need(line, own)
    add_rest(line, main, each, own, first, each.wanted)
    each = next_follower(serving, each.index + 1, slot_request)
  end
end

-- Adds a position in the line for a slot request behind another one, unless its rank already has a position.
local function wait_behind(serving, slot_request, line)
  if serving.fair and line.scope == serving.bucket.shared then return serving.fair.functions.wait_in_turn(serving, slot_request, line) end
  if line.slices[slot_request.slice] then return end
  serving.drawer.order = line_order(serving, slot_request, 0)
  local main = fit(serving, slot_request, line, line.scope == serving.bucket.shared and 0 or 1)
  local turn = turn_like(line.waiting[#line.waiting], line_order(serving, slot_request, 0), NOTHING, slot_request)
  local amounts = amounts_of_slice(serving, main, slot_request, slot_request.wanted)
  wait_for(serving, main, slot_request, slot_request.wanted, turn, amounts)
end

-- True if the calls ahead leave less than a whole slice. Drawing so few slots is not worth its cost.
local function is_too_little(serving, slot_request, main, opens_us, until_us, most)
  if main.fair or #main.ahead == 0 then return false end
  -- Checks each slice only once, at its first slot request.
  local line, all = main.line, nil
  if serving.is_try or line.refused then
    all = times(main, math.min(most, main.flow))
  elseif line.slices[slot_request.slice] and line.slices[slot_request.slice].first == slot_request.index then
    all = amounts_of_slice(serving, main, slot_request, slot_request.wanted)
  else
    return false
  end
  for _, before in ipairs(main.ahead) do
    if not is_in_time(main.scope, before, all, opens_us, until_us) then return true end
  end
  return turn_of(main, NOTHING, opens_us, all) > until_us
end

-- The shortest and the longest time until a replica that got nothing draws again.
local LEAST_ASK_GAP_US, LONGEST_ASK_GAP_US = 1000, 500000

-- Returns how long before a call's start its replica draws again, if other calls are ahead. With many calls per
-- horizon, the replica first waits for a part of the horizon, because the calls ahead may need more by then.
-- Otherwise many replicas would draw a little too early and get nothing. This part is a third of the horizon for a
-- replica that needs a whole slice at once, and an eighth for others.
local function ask_ahead_us(horizon_us, step_us, is_whole)
  local left_us = math.floor(horizon_us / (is_whole and 3 or 8))
  return step_us <= left_us / 8 and horizon_us - left_us or horizon_us
end

-- Adds a turn for the calls of a slot request that were not served. Returns when to draw again, and the number of the
-- limit that these calls wait for, from 1 on; 0 if there is none.
local function refuse(serving, slot_request, main, granted, opens_us, horizon_us)
  local left, now_us, scope, shared = slot_request.wanted - granted.count, serving.now_us, main.scope, serving.bucket.shared
  local is_try, line = serving.is_try, main.line
  if main.fair then main.fair.functions.begin_turns(serving, slot_request, granted.count) end
  local next_us = earliest_for_all_us(scope, opens_us, main.costs, 0, main.drawer)
  -- Uses the order of the remaining calls, which arrived after the served ones.
  local order, has_some = line_order(serving, slot_request, granted.count), granted.count > 0 or scope.is_served
  local amounts, is_whole, has_others, start_us, binding = nil, false, false, nil, nil
  if main.fair then
    main.fair.functions.pass_turns(serving, order, slot_request.since_us)
    main.fair.main_opens_us, has_others = opens_us, main.fair.has_others
    start_us, binding = main.fair.functions.start_in_turn(main.fair, main, opens_us, 1)
  else
    -- A try would draw again for one call only.
    if is_try then amounts = times(main, 1) else amounts, is_whole = amounts_of_slice(serving, main, slot_request, left) end
    local since_us = granted.count > 0 and math.huge or turn_since_of(line.own)
    local ahead = has_some and ahead_in(line, order, since_us) or main.ahead
    has_others = #ahead > 0
    start_us, binding = turn_of(main, ahead, opens_us, amounts)
  end
  local soonest_us = (has_some or is_try) and now_us or now_us + LEAST_ASK_GAP_US
  local is_later = not is_try and scope == shared and has_others
  local ahead_us = is_later and ask_ahead_us(horizon_us, main.step_us, is_whole) or horizon_us
  if main.fair and ahead_us < horizon_us then ahead_us = math.floor(horizon_us / 4) end
  local turn_us = next_us == math.huge and math.huge or math.max(soonest_us, start_us - ahead_us)
  if main.fair and next_us < math.huge then turn_us = math.min(turn_us, math.max(next_us - ahead_us, now_us + 2 * horizon_us)) end
  -- Without shared limits, the key keeps no turn while the bucket is paused. The pause may end at any time, and a
  -- later turn would make the key wait longer.
  local is_bucket_closed = scope ~= shared and closed_until_us(shared) > now_us + horizon_us
  local due_us = scope == shared and math.min(turn_us, now_us + LONGEST_ASK_GAP_US) or turn_us
  if is_bucket_closed then due_us = 0 end
  -- A try never waits, so the later slot requests of its draw need not wait behind it.
  if not is_try then
    local turn = { order = order, turn_us = turn_us, due_us = due_us, start_us = start_us }
    if main.fair then main.fair.functions.add_fair_need(serving, main, slot_request, left, order, turn)
    else wait_for(serving, main, slot_request, left, turn, amounts) end
  end
  local both = { { scope = shared, number = 0 }, main }
  granted.binds_at = closed_by(both, now_us + horizon_us)
  if granted.binds_at == 0 and next_us > now_us + horizon_us then
    local at = binding_at(main)
    granted.binds_at = at > 0 and at or slowed_by(both, now_us)
  end
  return turn_us, turn_us == math.huge and binding_at(main) or binding
end

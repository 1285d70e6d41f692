-- Serves the slot requests of a pool. Each call starts under the limits of one member, together with the shared limits
-- and the limits of its key. The line of the pool belongs to all members: a pending call has no position at a member.
-- A turn in this line has the costs of one call under the shared limits and the limits of all members. Two more numbers
-- follow: the number of calls, and their home.
-- The home of a call is 0 for any member, n for member n if it is free soon enough, and -n for member n only.

-- The code of the two numbers that follow the costs in a turn. It stands for no limit.
local NO_LIMIT = 100
RULES[NO_LIMIT] = { is_rate = true }
-- A replica alone draws again when all of its next calls could start, and this long before the first, in parts of a
-- horizon.
local EARLY_PARTS = 10
-- In how many parts calls of other replicas, and those of a slot request, are placed on members.
local OTHERS_PARTS, OWN_PARTS = 8, 64

-- Reads the members from the end of a request. Their keys are the last keys. Returns nil if a number is invalid.
local function read_pool(next_number, terms, keys)
  local count, sticky_us, at = next_number() or 0, next_number(), #terms.limits
  if count < 1 or count > #keys or sticky_us < 0 then return nil end
  local pool = { members = {}, sticky_us = sticky_us, key_count = #keys - count }
  for index = 1, count do
    local key = keys[pool.key_count + index]
    pool.members[index] = { key = key, number = index, at = at, tier = next_number(), is_usable = next_number() == 1, scope = nil }
    at = at + #key.template
  end
  terms.member_limits = at - #terms.limits
  return pool
end

-- Returns the costs of a call under the shared limits and the limits of all members, without those of its keys.
local function pool_costs_of(serving, class)
  if class.pool_costs then return class.pool_costs end
  local costs, shared_count, all = {}, #serving.bucket.shared.limits, class.costs
  local member_limits = #serving.pool.scope.limits - shared_count - 2
  for index = 1, shared_count do costs[index] = all[index] end
  for index = #all - member_limits + 1, #all do costs[#costs + 1] = all[index] end
  class.pool_costs = costs
  return costs
end

-- Returns when limits let a call start behind the calls that were placed before. The time is math.huge if it is unknown,
-- or if the call costs more than a limit ever allows. `at` is the number of amounts before those of the limits.
local function start_behind(pool, scope, opens_us, costs, at, drawer)
  local start_us, sums = opens_us, pool.sums
  for index, limit in ipairs(scope.limits) do
    local cost, rule = costs[at + index], RULES[limit.code]
    if cost > limit.capacity then return math.huge end
    if cost > 0 then
      local limit_us
      if rule.is_rate and not rule.is_budget then
        limit_us = room_at_us(limit, opens_us, sums[at + index] + cost)
      else
        limit_us = rule.earliest(limit, opens_us, rule.is_budget and cost or sums[at + index] + cost, drawer)
      end
      if limit_us > start_us then start_us = limit_us end
    end
  end
  return start_us
end

local function start_of_member(serving, member, costs, drawer)
  local opens_us = opens_at_us(member.scope, serving.now_us, step_of(member.scope.limits, costs, member.at))
  return start_behind(serving.pool, member.scope, opens_us, costs, member.at, drawer)
end

local function start_of_shared(serving, costs, drawer)
  local shared = serving.bucket.shared
  local opens_us = opens_at_us(shared, serving.now_us, step_of(shared.limits, costs, 0))
  return start_behind(serving.pool, shared, opens_us, costs, 0, drawer)
end

-- Returns the starts of a call of these costs at all members.
local function starts_of(serving, costs, drawer)
  local starts = { shared = start_of_shared(serving, costs, drawer) }
  for index, member in ipairs(serving.pool.members) do
    starts[index] = member.is_usable and start_of_member(serving, member, costs, drawer) or math.huge
  end
  return starts
end

-- Returns the member for a call, and when the call starts there. Members that are free by until_us come first, in the
-- order of their tiers. Among equals, the earliest start decides, then the member that was used least recently.
local function choose(pool, starts, home, until_us)
  local best, best_us, best_tier, members, kept = nil, math.huge, math.huge, pool.members, pool.kept
  if home < 0 then
    local only_us = members[-home] and math.max(starts.shared, starts[-home]) or math.huge
    return members[-home], only_us
  end
  for index, member in ipairs(members) do
    local at_us = math.max(starts.shared, starts[index])
    if at_us < math.huge and not (kept and kept[index]) then
      local tier = at_us <= until_us and member.tier or math.huge
      if pool.takes_first and at_us > starts.shared then tier = math.huge end
      local is_better = not best or tier < best_tier or (tier == best_tier and (at_us < best_us
        or (at_us == best_us and member.scope.last_us < best.scope.last_us)))
      if is_better then best, best_us, best_tier = member, at_us, tier end
    end
  end
  local own = members[home]
  if own and not (kept and kept[home]) then
    local home_us = math.max(starts.shared, starts[home])
    if home_us < math.huge and home_us <= best_us + pool.sticky_us then return own, home_us end
  end
  return best, best_us
end

-- The same for a call that is to start by until_us. If its own member is not free by then, it waits for it, but
-- calls.away of these calls may start at another member.
local function choose_now(pool, starts, calls, until_us)
  local member, start_us = choose(pool, starts, calls.home, until_us)
  if start_us > until_us and calls.away > 0 then return choose(pool, starts, 0, until_us) end
  return member, start_us
end

-- Places calls on a member. What is placed later comes behind them.
local function place(serving, member, starts, costs, count, drawer)
  local sums = serving.pool.sums
  for index = 1, #serving.bucket.shared.limits do sums[index] = sums[index] + count * costs[index] end
  for index = member.at + 1, member.at + #member.scope.limits do sums[index] = sums[index] + count * costs[index] end
  starts.shared = start_of_shared(serving, costs, drawer)
  starts[member.number] = start_of_member(serving, member, costs, drawer)
end

-- Returns how many calls a member takes at once: those that start within a part of the horizon. More calls would
-- overload a slow member, although a faster one is free earlier.
local function calls_at_once(serving, member, costs, most, most_parts)
  local step_us = most > 1 and step_of(member.scope.limits, costs, member.at) or 0
  if step_us == 0 then return most end
  return math.min(most, 1 + math.floor(serving.horizon_us / (most_parts * step_us)))
end

-- Places calls on the members that are free first, about `most_parts` of them in a horizon, and returns when the last of
-- a part starts. Returns early if that is after latest_us, and math.huge if no member takes the calls.
local function place_calls(serving, costs, calls, until_us, latest_us, most_parts)
  local pool, drawer = serving.pool, calls.drawer or NO_ASKER
  local starts, left, size, last_us = starts_of(serving, costs, drawer), calls.count, math.ceil(calls.count / most_parts), 0
  while left > 0 do
    local member, start_us
    if calls.away then member, start_us = choose_now(pool, starts, calls, until_us) else member, start_us = choose(pool, starts, calls.home, until_us) end
    if not member or start_us == math.huge then return math.huge end
    local count = calls_at_once(serving, member, costs, math.min(left, size), most_parts)
    if calls.away and member.number ~= calls.home then calls.away = calls.away - count end
    if count > 1 then place(serving, member, starts, costs, count - 1, drawer) end
    last_us = math.max(last_us, starts.shared, starts[member.number])
    if last_us > latest_us then return last_us end
    place(serving, member, starts, costs, 1, drawer)
    left = left - count
  end
  return last_us
end

-- Returns the pending calls of other replicas, in the order of the line.
local function pending_of(serving, line)
  local pending = {}
  for _, turn in ipairs(line.others) do
    for _, need in ipairs(needs_of(turn, #serving.bucket.shared.line.scope.limits)) do
      local at = #serving.pool.scope.limits
      pending[#pending + 1] = {
        order = need.order, since_us = turn.since_us, call_since_us = need.call_since_us, amounts = need.amounts,
        count = need.amounts[at - 1], home = need.amounts[at], index = #pending,
        start_us = need.start_us or turn.start_us, is_exact = need.start_us ~= nil, due_us = turn.due_us,
      }
    end
  end
  table.sort(pending, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    if a.call_since_us ~= b.call_since_us then return a.call_since_us < b.call_since_us end
    if a.since_us ~= b.since_us then return a.since_us < b.since_us end
    return a.index < b.index
  end)
  return pending
end

-- Returns the calls that come before a call of this order: those of other replicas, and those of this draw that got no
-- slot.
local function ahead_in_pool(serving, order, since_us, call_since_us)
  local pool, ahead = serving.pool, {}
  pool.pending = pool.pending or pending_of(serving, serving.bucket.shared.line)
  for _, need in ipairs(pool.pending) do
    local is_ahead = need.order < order
    if need.order == order then
      local is_same = not serving.is_fair or need.call_since_us == call_since_us
      is_ahead = is_same and need.since_us < since_us or not is_same and need.call_since_us < call_since_us
    end
    if is_ahead then ahead[#ahead + 1] = need end
  end
  for _, need in ipairs(pool.own) do ahead[#ahead + 1] = need end
  return ahead
end

local function place_nothing(pool)
  for index = 1, #pool.scope.limits do pool.sums[index] = 0 end
end

-- Returns how many calls of a slot request may start at any member, because they have waited for that of their key for
-- long enough, or will have to behind the calls ahead. The calls came at even intervals, as far as is known.
local function away_of(serving, slot_request, ahead, until_us)
  local pool, wanted, home, costs = serving.pool, slot_request.wanted, slot_request.home, slot_request.class.pool_costs
  if home <= 0 then return 0 end
  local since_us, last_us = slot_request.since_us, slot_request.last_since_us
  local late_us = serving.now_us - pool.sticky_us - since_us
  if since_us > 0 and late_us >= 0 then
    return last_us <= since_us and wanted or math.min(wanted, 1 + math.floor((wanted - 1) * late_us / (last_us - since_us)))
  end
  place_nothing(pool)
  local starts = starts_of(serving, costs, serving.drawer)
  if math.max(starts.shared, starts[home]) <= until_us then return 0 end
  for _, need in ipairs(ahead) do place_calls(serving, need.amounts, need, until_us, math.huge, OTHERS_PARTS) end
  return choose(pool, starts_of(serving, costs, serving.drawer), home, until_us) == pool.members[home] and 0 or wanted
end

-- Returns whether this many calls may start before the calls ahead of them. Each of these must still start by until_us,
-- by the time in its asker's last reply, or when it would start without these calls (alone_us).
local function delays_none_ahead(serving, slot_request, ahead, count, until_us, alone_us)
  local calls = { count = count, home = slot_request.home, away = slot_request.away, drawer = serving.drawer }
  place_nothing(serving.pool)
  serving.pool.kept = slot_request.kept
  local last_us = place_calls(serving, slot_request.class.pool_costs, calls, until_us, until_us, OWN_PARTS)
  serving.pool.kept = nil
  if last_us > until_us then return false end
  for index, need in ipairs(ahead) do
    local latest_us = need.is_exact and need.start_us + LATE_US or math.max(until_us, need.start_us)
    latest_us = math.max(latest_us, alone_us[index] or 0)
    if place_calls(serving, need.amounts, need, until_us, latest_us, OTHERS_PARTS) > latest_us then return false end
  end
  return true
end

-- Returns whether a member's limits ever allow calls of these costs and this home.
local function may_use(member, costs, home)
  if not member.is_usable or home < 0 and home ~= -member.number then return false end
  for index, limit in ipairs(member.scope.limits) do
    if costs[member.at + index] > limit.capacity then return false end
  end
  return true
end

-- Returns which members limits ever allow to take the calls of a turn, by number. False if all usable ones do.
local function members_of(pool, need)
  if need.members == nil then
    local members, are_all = {}, true
    for index, member in ipairs(pool.members) do
      members[index] = may_use(member, need.amounts, need.home)
      are_all = are_all and (members[index] or not member.is_usable)
    end
    need.members = not are_all and members
  end
  return need.members
end

-- Returns the members that a slot request keeps free for calls ahead, because these may not use each member that the
-- slot request may use. Nil if there are none. Also returns how many of the turns ahead may use other members.
local function members_to_keep(serving, slot_request, ahead)
  local pool, costs, kept, rivals = serving.pool, slot_request.class.pool_costs, nil, #ahead
  for _, need in ipairs(ahead) do
    local used, is_choosy = members_of(pool, need), false
    for index, member in ipairs(used and pool.members or NOTHING) do
      is_choosy = is_choosy or not used[index] and may_use(member, costs, slot_request.home)
    end
    if is_choosy then
      kept, rivals = kept or {}, rivals - 1
      for index in ipairs(pool.members) do kept[index] = kept[index] or used[index] end
    end
  end
  return kept, rivals
end

-- Returns how many calls of a horizon this replica may have at the members that it does not keep free for calls ahead.
local function flow_without(serving, class, kept)
  local flow = 0
  for number, own in pairs(class.flows) do if not kept[number] then flow = flow + own end end
  return math.max(1, math.min(class.flow, share_of(math.floor(flow), serving.sharers)))
end

-- Returns whether a member of a later tier takes calls if it is free when the shared limits are. Otherwise these calls
-- would start later, and the time that the shared rates have until then would be lost. That matters if more calls wait.
local function takes_first_free(serving, slot_request, ahead, until_us)
  local pool, has_rate, has_tiers = serving.pool, false, false
  for _, limit in ipairs(serving.bucket.shared.limits) do
    has_rate = has_rate or RULES[limit.code].is_rate and not RULES[limit.code].is_budget
  end
  for _, member in ipairs(pool.members) do has_tiers = has_tiers or member.tier > 0 end
  if not has_rate or not has_tiers then return false end
  if #ahead > 0 then return true end
  place_nothing(pool)
  local calls = { count = slot_request.wanted, home = slot_request.home, away = slot_request.away, drawer = serving.drawer }
  return place_calls(serving, slot_request.class.pool_costs, calls, until_us, until_us, OWN_PARTS) > until_us
end

-- Returns when the last of the calls of each turn ahead would start without the calls of this draw, and whether time
-- passes until then that no replica ahead uses. A replica that draws later books no slot before that.
local function starts_alone(serving, ahead, until_us)
  local alone_us, has_spare = {}, false
  place_nothing(serving.pool)
  for index, need in ipairs(ahead) do
    local _, first_us = choose(serving.pool, starts_of(serving, need.amounts, serving.drawer), need.home, until_us)
    local spare_us = first_us < math.huge and math.max(0, (need.due_us or 0) - first_us) or 0
    alone_us[index] = place_calls(serving, need.amounts, need, until_us, math.huge, OTHERS_PARTS) + spare_us
    has_spare = has_spare or spare_us > 0
  end
  return alone_us, has_spare
end

-- Returns how many calls may start before the calls ahead of them. If that is less than a slice, and the rest of it
-- could start one horizon later, returns 0, because drawing so few slots is not worth its cost. Time that no replica
-- ahead uses is worth it.
local function count_before(serving, slot_request, ahead, most, until_us)
  if #ahead == 0 then return most end
  local class, pool = slot_request.class, serving.pool
  local function count_up_to(slice)
    local count, too_many, alone_us, has_spare = 0, most + 1, {}, false
    local function check(middle)
      if delays_none_ahead(serving, slot_request, ahead, middle, until_us, alone_us) then count = middle else too_many = middle end
    end
    check(slice)
    if count == 0 then
      alone_us, has_spare = starts_alone(serving, ahead, until_us)
      check(slice)
    end
    if count == slice and most > slice then check(most) end
    while too_many - count > 1 do check(math.floor((count + too_many) / 2)) end
    if count >= slice or serving.is_try or has_spare then return count end
    delays_none_ahead(serving, slot_request, ahead, count, until_us, alone_us)
    pool.kept = slot_request.kept
    local _, next_us = choose(pool, starts_of(serving, class.pool_costs, serving.drawer), slot_request.home, until_us)
    pool.kept = nil
    return next_us <= until_us + serving.horizon_us and 0 or count
  end
  local slice = serving.is_try and most or math.min(most, class.flow)
  local count = count_up_to(slice)
  if count >= slice then return count end
  slot_request.kept = members_to_keep(serving, slot_request, ahead)
  if not slot_request.kept then return count end
  local others = count_up_to(math.min(slice, flow_without(serving, class, slot_request.kept)))
  if others > count then return others end
  slot_request.kept = nil
  return count
end

-- Returns how many calls of a class start within a horizon, how many of these need no burst, and the time that one of
-- them takes, over all open members.
local function room_of(serving, class)
  if class.room then return class.room end
  local costs, horizon_us = class.pool_costs, serving.horizon_us
  local function room_in(limits, at)
    local room = { calls = MOST_ROOM, flow = MOST_ROOM, step_us = 0 }
    for index, limit in ipairs(limits) do
      local cost, rule = costs[at + index], RULES[limit.code]
      if cost > limit.capacity then return { calls = 0, flow = 0, step_us = math.huge } end
      if not rule.is_rate then
        room.calls, room.flow = math.min(room.calls, limit.capacity), math.min(room.flow, limit.capacity)
      elseif cost > 0 and not rule.is_budget then
        local each_us = (cost * limit.period_us) / limit.count
        room.step_us = math.max(room.step_us, each_us)
        room.calls = math.min(room.calls, limit.capacity / cost + horizon_us / each_us)
        room.flow = math.min(room.flow, 1 + horizon_us / each_us)
      end
    end
    return room
  end
  local calls, flow, rate, all = 0, 0, 0, room_in(serving.bucket.shared.limits, 0)
  class.flows = {}
  for _, member in ipairs(serving.pool.members) do
    if member.is_usable and closed_until_us(member.scope) <= serving.now_us + horizon_us then
      local room = room_in(member.scope.limits, member.at)
      class.flows[member.number] = room.flow
      calls, flow, rate = calls + room.calls, flow + room.flow, rate + 1 / room.step_us
    end
  end
  class.room = {
    calls = math.max(1, math.min(calls, all.calls)), flow = math.max(1, math.min(flow, all.flow)),
    step_us = math.max(all.step_us, rate > 0 and 1 / rate or 0),
  }
  return class.room
end

-- Sets how many calls of a horizon each replica may have.
local function size_pool(serving, class)
  if class.flow then return end
  local room = room_of(serving, class)
  class.step_us, class.share = room.step_us, share_of(math.floor(room.calls), serving.sharers)
  class.flow = math.min(class.share, share_of(math.floor(room.flow), serving.sharers))
end

-- Returns the earliest start of a call if all other calls give up, and what delays it until then.
local function soonest_in_pool(serving, slot_request, horizon_us)
  local scopes, pool, costs = {}, serving.pool, slot_request.class.pool_costs
  if slot_request.is_bounded then
    for index, key in ipairs(slot_request.keys) do scopes[index] = open_scope(key, serving.now_us) end
  end
  local soonest_us, binds_at = soonest_unserved(serving, slot_request, scopes, horizon_us)
  local best_us, best_at = math.huge, 0
  for _, member in ipairs(pool.members) do
    local is_allowed = member.is_usable and (slot_request.home >= 0 or slot_request.home == -member.number)
    for index, limit in ipairs(member.scope.limits) do is_allowed = is_allowed and costs[member.at + index] <= limit.capacity end
    if is_allowed then
      local gate = {
        scope = member.scope, number = #slot_request.keys + member.number, costs = costs, after = member.at,
        step_us = step_of(member.scope.limits, costs, member.at), drawer = NO_ASKER,
      }
      local at_us, binding = soonest_in(gate, gate, serving.now_us, serving.now_us + horizon_us)
      -- The reply counts the limits of the keys too.
      if binding > 0 then binding = binding + #slot_request.class.costs - #costs end
      if at_us < best_us then best_us, best_at = at_us, binding end
    end
  end
  if best_us < math.huge and best_us > soonest_us then return best_us, best_at end
  return soonest_us, binds_at
end

-- Adds a position in the line for the calls of a slot request that were not served: for the first of them, as many as
-- start within one horizon of each other. Returns that position. For a try, only returns when the next one could start.
local function refuse_in_pool(serving, slot_request, left, served, horizon_us)
  local pool, line, now_us, class = serving.pool, serving.bucket.shared.line, serving.now_us, slot_request.class
  local costs, home, until_us = class.pool_costs, slot_request.away > 0 and 0 or slot_request.home, now_us + horizon_us
  local order = line_order(serving, slot_request, served)
  local since_us = served > 0 and math.huge or turn_since_of(line.own)
  local ahead = ahead_in_pool(serving, order, since_us, slot_request.since_us)
  place_nothing(pool)
  for _, need in ipairs(ahead) do place_calls(serving, need.amounts, need, until_us, math.huge, OTHERS_PARTS) end
  local starts, names = starts_of(serving, costs, serving.drawer), slot_request.names
  if serving.is_try then return select(2, choose(pool, starts, home, until_us)) end
  local is_unknown = false
  for index, member in ipairs(pool.members) do
    is_unknown = is_unknown or member.is_usable and starts[index] == math.huge and (home >= 0 or home == -index)
  end
  -- Calls that keep some members free need none of their room.
  local kept, rivals = members_to_keep(serving, slot_request, ahead)
  local needed, flow = line.needed, class.flow
  if kept then needed, flow = pool.needed_beside, flow_without(serving, class, kept) end
  local is_first = needed == 0 or names and not line.keys[names]
  local most = math.min(left, math.max(is_first and 1 or 0, math.floor((1 - needed) * flow)))
  local count, first_us, start_us = 0, math.huge, math.huge
  pool.kept = kept
  while count < most do
    local member, at_us = choose(pool, starts, home, until_us)
    if not member or at_us == math.huge or at_us > first_us + serving.horizon_us then break end
    if count == 0 then first_us = at_us end
    count, start_us = count + 1, at_us
    place(serving, member, starts, costs, 1, serving.drawer)
  end
  pool.kept = nil
  local soonest_us = (served > 0 or pool.scope.is_served) and now_us or now_us + LEAST_ASK_GAP_US
  local is_whole = left >= flow and not serving.is_fair
  local ahead_us = rivals > 0 and ask_ahead_us(horizon_us, class.step_us, is_whole) or horizon_us
  local turn_us = count == 0 and math.huge or math.max(soonest_us, start_us - ahead_us)
  if count > 0 and rivals == 0 then turn_us = math.max(soonest_us, math.min(turn_us, math.floor(first_us - horizon_us / EARLY_PARTS))) end
  if home > 0 and count > 0 then turn_us = math.min(turn_us, math.max(soonest_us, slot_request.since_us + pool.sticky_us)) end
  -- Later calls of this replica may use the members that these may not, so they do not wait for this turn.
  for _, member in ipairs(pool.members) do
    local is_left = member.is_usable and not may_use(member, costs, home)
    if is_left and count > 0 then turn_us = math.min(turn_us, math.max(soonest_us, now_us + horizon_us)) end
  end
  local most_needs = serving.is_fair and MOST_FAIR_NEEDS or MOST_NEEDS
  local function add(need_turn_us, calls)
    local amounts = { unpack(costs) }
    amounts[#amounts + 1] = calls
    amounts[#amounts + 1] = home
    local need = turn_like({ turn_us = need_turn_us, due_us = math.min(need_turn_us, now_us + LONGEST_ASK_GAP_US), start_us = start_us },
      order, amounts, slot_request)
    if serving.is_fair then
      local own = slot_request.turns[1]
      need.names, need.span_us = names, calls * slot_request.class.turn_us
      need.weight, line.keys[own] = line.keys[own] and 0 or slot_request.weights and slot_request.weights[1] or 1, true
    end
    add_need(line, need)
    pool.own[#pool.own + 1] = { amounts = amounts, count = calls, home = home, start_us = start_us }
    return need
  end
  local first = nil
  if count > 0 and #line.waiting < most_needs then
    if kept then pool.needed_beside = needed + count / flow else line.needed = needed + count / flow end
    if names then line.keys[names] = true end
    first = add(turn_us, count)
  end
  -- Waits for a lease too, if a lease of some member is not free.
  if is_unknown and pool.waits_for_lease ~= order then
    pool.waits_for_lease = pool.waits_for_lease or order
    add(math.huge, first and 0 or 1)
  elseif #line.waiting == 0 then
    -- No member takes such calls now: asks whether that has changed.
    add(now_us + LONGEST_ASK_GAP_US, 0)
  end
  return first
end

-- Books slots for one call after the other. Returns the gate that delays the next call, if a gate delays it.
local function book_in_pool(serving, slot_request, gates, most, until_us, granted)
  local pool, shared, drawer, costs = serving.pool, serving.bucket.shared, serving.drawer, slot_request.class.pool_costs
  place_nothing(pool)
  local starts, first_us = starts_of(serving, costs, drawer), nil
  if slot_request.class.has_leases == nil then
    slot_request.class.has_leases = not has_no_leases(pool, gates)
  end
  local calls = { home = slot_request.home, away = slot_request.away }
  while granted.count < most do
    pool.kept = slot_request.kept
    local member, start_us = choose_now(pool, starts, calls, until_us)
    pool.kept = nil
    if not member or start_us > until_us then return nil end
    if member.number ~= calls.home then calls.away = calls.away - 1 end
    -- The calls ahead get their slots later, within the horizon.
    local opens_us = opens_at_us(shared, serving.now_us, step_of(shared.limits, costs, 0))
    local at_us = earliest_for_all_us(shared, opens_us, costs, 0, drawer)
    opens_us = opens_at_us(member.scope, at_us, step_of(member.scope.limits, costs, member.at))
    at_us = earliest_for_all_us(member.scope, opens_us, costs, member.at, drawer)
    first_us = first_us or at_us
    if #gates > 0 then
      local passes_us, deferred = for_gates().start_through(serving, gates, first_us, at_us, until_us)
      if deferred then return deferred end
      at_us = passes_us
    end
    if slot_request.class.has_leases then
      drawer.lease = serving.lease
      serving.lease = serving.lease + 1
    end
    if #shared.limits > 0 then commit_all(shared, at_us, costs, 0, drawer) end
    commit_all(member.scope, at_us, costs, member.at, drawer)
    for _, gate in ipairs(gates) do commit_all(gate.scope, at_us, gate.costs, gate.after, drawer) end
    member.key.is_drawn, granted.count = true, granted.count + 1
    granted.slots[granted.count], granted.members[granted.count] = at_us, member.number
    starts.shared = start_of_shared(serving, costs, drawer)
    starts[member.number] = start_of_member(serving, member, costs, drawer)
  end
end

-- Takes slots that other replicas have returned.
local function take_pool_holes(serving, slot_request, most, until_us, granted)
  local name = ARGV[LAST_BEFORE_NAMES + slot_request.number]
  for _, member in ipairs(serving.pool.members) do
    if member.is_usable and (slot_request.home >= 0 or slot_request.home == -member.number) then
      local left = most - granted.count
      for _, at_us in ipairs(for_holes()(serving.bucket, string.format('%s @%d', name, member.number), left, until_us)) do
        granted.count = granted.count + 1
        granted.slots[granted.count], granted.members[granted.count] = at_us, member.number
      end
    end
  end
end

-- Adds the scopes of the members to a draw, and replaces the line of the bucket by that of the pool.
local function open_pool(serving)
  local pool, shared, limits = serving.pool, serving.bucket.shared, {}
  for index, limit in ipairs(shared.limits) do limits[index] = limit end
  for _, member in ipairs(pool.members) do
    member.scope = open_scope(member.key, serving.now_us)
    for _, limit in ipairs(member.scope.limits) do limits[#limits + 1] = limit end
  end
  for _ = 1, 2 do limits[#limits + 1] = { code = NO_LIMIT } end
  pool.size, pool.room_of = size_pool, room_of
  pool.sums, pool.own, pool.full, pool.needed_beside = {}, {}, {}, 0
  for index = 1, #limits do pool.sums[index] = 0 end
  pool.scope = { limits = limits, turns_key = shared.turns_key, turns_until_us = shared.turns_until_us, line = nil, is_served = nil }
  shared.line = line_of(serving, pool.scope, serving.own)
  for _, slot_request in ipairs(serving.slot_requests) do pool_costs_of(serving, slot_request.class) end
end

-- Returns the result of a slot request whose calls fit into the budget of no member within the horizon; nil if they fit
-- into one. The budget that has room first decides.
local function spent_at_members(serving, slot_request)
  local pool, costs, now_us, first = serving.pool, slot_request.class.pool_costs, serving.now_us, nil
  local after = #slot_request.class.costs - #costs
  for _, member in ipairs(pool.members) do
    local is_allowed, spent = member.is_usable and (slot_request.home >= 0 or slot_request.home == -member.number), nil
    for index, limit in ipairs(member.scope.limits) do
      local cost, rule = costs[member.at + index], RULES[limit.code]
      is_allowed = is_allowed and cost <= limit.capacity
      local fits_us = is_allowed and rule.is_budget and cost > 0 and rule.earliest(limit, now_us, cost, serving.drawer) or now_us
      if fits_us > now_us + serving.horizon_us and fits_us > (spent and spent.soonest_us or 0) then
        spent = { soonest_us = fits_us, binds_at = after + member.at + index, limit = limit }
      end
    end
    if is_allowed and not spent then return nil end
    if is_allowed and (not first or spent.soonest_us < first.soonest_us) then first = spent end
  end
  if not first then return nil end
  return {
    slots = NOTHING, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, not_before_us = first.soonest_us,
    binds_at = first.binds_at, soonest_us = first.soonest_us, limit = first.limit,
    balance = RULES[first.limit.code].balance(first.limit, now_us),
  }
end

local function serve_from_pool(serving, slot_request)
  local pool, line, class = serving.pool, serving.bucket.shared.line, slot_request.class
  local horizon_us, now_us = horizon_of(serving, slot_request.rank), serving.now_us
  local granted = {
    slots = {}, members = {}, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, not_before_us = 0, binds_at = 0, soonest_us = 0,
  }
  if slot_request.wanted == 0 then
    granted.soonest_us, granted.binds_at = soonest_in_pool(serving, slot_request, horizon_us)
    return granted
  end
  local spent = has_budgets and (for_budgets().spent_by(serving, slot_request, open_scope) or spent_at_members(serving, slot_request))
  if spent then
    spent.members = {}
    return spent
  end
  size_pool(serving, class)
  local order, until_us, gates, after, deferred = line_order(serving, slot_request, 0), now_us + horizon_us, {}, #serving.bucket.shared.limits, nil
  serving.drawer.order, serving.drawer.reserves = order, slot_request.reserves
  serving.gate_drawer = gate_drawer_of(serving, slot_request)
  slot_request.away = 0
  local is_full = slot_request.home == 0 and until_us <= (pool.full[class] or 0)
  if not is_full then
    local ahead = ahead_in_pool(serving, order, turn_since_of(line.own), slot_request.since_us)
    pool.takes_first = false
    slot_request.away = away_of(serving, slot_request, ahead, until_us)
    pool.takes_first = takes_first_free(serving, slot_request, ahead, until_us)
    for index, key in ipairs(slot_request.keys) do
      local scope = open_scope(key, now_us)
      local own = slot_request.positions and slot_request.positions[index] or NO_POSITION
      gates[index] = fit_gate(serving, slot_request, scope, index, after, own)
      after = after + #scope.limits
    end
    local share_left = serving.is_try and slot_request.wanted or math.floor((1 - line.used) * class.share)
    local most = math.min(slot_request.wanted, MOST_LISTED, math.max(line.used == 0 and 1 or 0, share_left))
    if serving.bucket.holes > 0 and not serving.is_try and not has_budgets then
      take_pool_holes(serving, slot_request, most, now_us + serving.horizon_us, granted)
    end
    local recycled = granted.count
    most = recycled + count_before(serving, slot_request, ahead, most - recycled, until_us)
    deferred = book_in_pool(serving, slot_request, gates, most, until_us, granted)
    if #serving.shadows > 0 then
      for_shadows().count_calls(serving.shadows, granted, recycled, slot_request, { scope = { limits = NOTHING }, drawer = serving.drawer })
    end
    if granted.count > 0 then
      if slot_request.turns then for_fair().count_turns(serving.fair, slot_request, granted.count) end
      serving.has_granted, pool.scope.is_served = true, true
      for _, gate in ipairs(gates) do gate.scope.is_served = true end
      for _, key in ipairs(slot_request.keys) do key.is_drawn = true end
      line.used = line.used + granted.count / class.share
    end
    if not deferred and granted.count < most and slot_request.home == 0 and #gates == 0 then pool.full[class] = until_us end
  end
  local left = slot_request.wanted - granted.count
  if deferred then
    end_at_gate(serving, slot_request, gates, granted, deferred)
  elseif left > 0 then
    local turn = refuse_in_pool(serving, slot_request, left, granted.count, horizon_us)
    if serving.is_try then granted.not_before_us = turn
    elseif turn then keep_behind(serving, gates, nil, slot_request, turn, left) end
  end
  if deferred or left > 0 then
    local soonest_us, binds_at = soonest_in_pool(serving, slot_request, horizon_us)
    granted.soonest_us = serving.is_try and 0 or soonest_us
    if binds_at ~= 0 then granted.binds_at = binds_at end
  end
  return granted
end

local function add_member_statuses(serving, slot_request, numbers)
  local costs, statuses = slot_request.class.pool_costs, {}
  for _, member in ipairs(serving.pool.members) do for_tries().add_statuses(statuses, member.scope, costs, member.at, serving.now_us) end
  for _, status in ipairs(statuses) do
    for each = 1, 3 do numbers[#numbers + 1] = status[each] end
  end
end

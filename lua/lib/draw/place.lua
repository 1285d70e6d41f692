-- Whether a wish fits into a scope, and the place that its asker keeps there if it does not.
-- Twin of src/core/draw/place.ts.
local NO_PLACE = { turn_us = 0, turn_name = '', lease_order = 0 }

-- How far ahead a wish of this rank may be booked, in us.
local function horizon_of(serving, rank)
  return math.floor((serving.horizon_us * serving.shares[rank + 1]) / 1000)
end

-- The line of a scope, opened at first use: who waits in it.
local function line_of(serving, scope, own)
  if not scope.line then
    scope.line = { scope = scope, own = own, others = read_turns(scope, serving.asker, serving.missed_us), waiting = {}, used = 0 }
  end
  return scope.line
end

-- Calls that came together are behind each other, but not by more than this.
local MOST_AHEAD_US = 1000000

-- Since when a call is in line.
local function since_of(since_us, now_us)
  return since_us == 0 and now_us or math.min(since_us, now_us + MOST_AHEAD_US)
end

-- Since when an asker waits for its turn; math.huge if it has none: it comes last of those that came together.
local function turn_since_of(place)
  return place.turn_name ~= '' and tonumber(string.match(place.turn_name, '^%d+')) or math.huge
end

-- What comes before calls of this order: of other askers, and of wishes before this one.
local function ahead_in(line, order, since_us)
  if #line.waiting == 0 then return ahead_of(line.others, order, since_us) end
  local turns = {}
  for _, turn in ipairs(line.others) do turns[#turns + 1] = turn end
  for _, need in ipairs(line.waiting) do
    turns[#turns + 1] = { since_us = 0, start_us = need.start_us, needs = { need } }
  end
  return ahead_of(turns, order, since_us)
end

-- So many of a list, which come after so many others.
local function slice(list, after, count)
  local part = {}
  for index = 1, count do part[index] = list[after + index] end
  return part
end

-- What a wish needs of a scope, whose limits come after so many others: of what all keys share (0), or of one of the wish's
-- keys, by its number. A gate gives nothing ahead, so what comes before a call is not delayed there, and it has no share.
local function fit(serving, wish, line, number, after, is_gate)
  local limits, now_us = line.scope.limits, serving.now_us
  local costs = slice(wish.costs, after, #limits)
  local share = not is_gate and share_of(calls_in(limits, costs, serving.horizon_us, true), serving.alive)
  local order = order_of(wish.rank, since_of(wish.since_us, now_us))
  return {
    scope = line.scope, number = number, line = line, costs = costs, after = after, step_us = step_of(limits, costs), share = share,
    flow = share and math.min(share, share_of(calls_in(limits, costs, serving.horizon_us, false), serving.alive)),
    drawer = { asker = serving.asker, now_us = now_us, order = order, lease = serving.lease },
    until_us = is_gate and now_us or now_us + horizon_of(serving, wish.rank),
    ahead = ahead_in(line, order, turn_since_of(line.own)),
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

-- What holds a call back where no limit does, as a reply says it: a cooldown, a pause, or a rate that answers have slowed,
-- of a scope with this number.
local COOLING, PAUSED, SLOWED, CAUSES = -1, -2, -3, 3
local function bound_by(cause, number)
  return cause - CAUSES * number
end

-- A cooldown or a pause of one of these fittings, the one that lasts longest, if it lasts beyond this time; 0: none does.
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

-- Whether answers have slowed the rate of one of these fittings, the first such; 0: of none.
local function slowed_by(fittings, now_us)
  for _, fitting in ipairs(fittings) do
    if keeps_gap(fitting.scope, now_us) then return bound_by(SLOWED, fitting.number) end
  end
  return 0
end

-- Keeps the asker's place in a line for all that it waits for there; if that is nothing, it leaves.
local function settle_line(serving, line)
  if serving.is_try then return NO_PLACE end
  local scope, own, lease_order, turn, turn_us = line.scope, line.own, 0, nil, 0
  for _, need in ipairs(line.waiting) do
    if need.turn_us == math.huge then
      if lease_order == 0 then lease_order = need.order end
    elseif need.due_us > 0 then
      -- One that was served comes after those that asked at the same moment.
      local since_us = line.is_served and serving.now_us + 1 or math.min(serving.now_us, turn_since_of(own))
      turn = turn or { asker = serving.asker, since_us = since_us, due_us = need.due_us, start_us = need.start_us, needs = {} }
      turn.due_us = math.min(turn.due_us, need.due_us)
      turn_us = #turn.needs == 0 and need.turn_us or math.min(turn_us, need.turn_us)
      turn.needs[#turn.needs + 1] = need
    end
  end
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if rule.leave_place and own.lease_order > 0 and own.lease_order ~= lease_order then
      rule.leave_place(limit, { asker = serving.asker, now_us = serving.now_us, order = own.lease_order })
    end
    if rule.keep_place and lease_order > 0 then
      rule.keep_place(limit, { asker = serving.asker, now_us = serving.now_us, order = lease_order })
    end
  end
  local missed_us = serving.is_new_window and serving.missed_us or nil
  local name = keep_turn(scope, own.turn_name, turn, missed_us, serving.now_us)
  return { turn_us = turn_us, turn_name = name, lease_order = lease_order }
end

-- The order of what is left of a wish: its calls came evenly, as far as is known.
local function order_of_rest(wish, served, now_us)
  local first_us = since_of(wish.since_us, now_us)
  if served == 0 then return order_of(wish.rank, first_us) end
  local next_us = math.max(first_us, since_of(wish.next_since_us, now_us))
  local last_us = math.max(next_us, since_of(wish.last_since_us, now_us))
  return order_of(wish.rank, next_us + math.floor(((last_us - next_us) * (served - 1)) / wish.wanted))
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

-- Whether all that comes before these calls keeps its time if so many of them are booked at once.
local function delays_none(fitting, count)
  if #fitting.ahead == 0 then return true end
  local opens_us = opens_at_us(fitting.scope, fitting.drawer.now_us, fitting.step_us)
  local all = times(fitting.costs, count)
  for _, before in ipairs(fitting.ahead) do
    if not is_in_time(fitting.scope, before, all, opens_us, fitting.until_us) then return false end
  end
  return true
end

-- When so many calls could start after all that comes before them, and the limit, from 1 on, that decides it.
local function turn_of(fitting, ahead, opens_us, count)
  local all, sums = times(fitting.costs, count), {}
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

-- Calls of a wish that came within this time are served one after the other.
local RUN_US = 50000

-- Adds to a line what the calls of a wish need that are left: as many as its asker comes for, and of limits that do not
-- give evenly the others that came with those.
local function add_needs(fitting, wish, turn, first, left)
  local waiting, is_even = fitting.line.waiting, true
  turn.amounts = times(fitting.costs, first)
  waiting[#waiting + 1] = turn
  for index, limit in ipairs(fitting.scope.limits) do
    local rule = RULES[limit.code]
    is_even = is_even and (fitting.costs[index] == 0 or not rule.is_rate or rule.does_drain or false)
  end
  local more = left - first
  if is_even or more <= 0 or wish.last_since_us - wish.since_us >= RUN_US then return end
  waiting[#waiting + 1] = {
    order = turn.order, turn_us = turn.turn_us, due_us = turn.due_us, start_us = turn.start_us,
    amounts = times(fitting.costs, more),
  }
end

-- An asker that got nothing does not ask again before this time has passed; it asks again at least this often.
local LEAST_ASK_GAP_US, LONGEST_ASK_GAP_US = 1000, 500000

-- How long before its start a call is asked for again that others come before. If a horizon has many calls, an eighth of
-- it is left for those others, who may want more by then; else many would come a little too early, for nothing.
local function ask_ahead_us(horizon_us, step_us)
  local left_us = math.floor(horizon_us / 8)
  return step_us <= left_us / 8 and horizon_us - left_us or horizon_us
end

-- Gives the asker a turn for the rest of a wish. Returns that, and the limit, from 1 on, that the rest waits for; 0 if none.
local function refuse(serving, wish, main, granted, opens_us, horizon_us)
  local left, now_us, scope, shared = wish.wanted - granted.count, serving.now_us, main.scope, serving.bucket.shared
  local next_us = earliest_for_all_us(scope, opens_us, main.costs, main.drawer)
  -- A try asks again for one call. An asker that waits comes for as many as now, since more calls come until then, but
  -- for no more than a horizon has for it; were it for those that are left, all behind it would ask too early.
  local needed = serving.is_try and 1 or math.min(wish.wanted, main.flow)
  -- The rest came later than those that were served.
  local order = order_of_rest(wish, granted.count, now_us)
  local ahead = granted.count == 0 and main.ahead or ahead_in(main.line, order, math.huge)
  local start_us, binding = turn_of(main, ahead, opens_us, needed)
  local soonest_us = (granted.count == 0 and not serving.is_try) and now_us + LEAST_ASK_GAP_US or now_us
  local is_later = not serving.is_try and scope == shared and #ahead > 0
  local ahead_us = is_later and ask_ahead_us(horizon_us, main.step_us) or horizon_us
  local turn_us = next_us == math.huge and math.huge or math.max(soonest_us, start_us - ahead_us)
  -- In a bucket with limits per key only, a pause may end any time: a turn after it would keep the key waiting.
  local is_bucket_closed = scope ~= shared and closed_until_us(shared) > now_us + horizon_us
  local due_us = scope == shared and math.min(turn_us, now_us + LONGEST_ASK_GAP_US) or turn_us
  if is_bucket_closed then due_us = 0 end
  local turn = { order = order, turn_us = turn_us, due_us = due_us, start_us = start_us }
  -- A try waits for nothing, so others of its request are not behind it.
  if not serving.is_try then add_needs(main, wish, turn, needed, left) end
  local both = { { scope = shared, number = 0 }, main }
  granted.binds_at = closed_by(both, now_us + horizon_us)
  if granted.binds_at == 0 and next_us > now_us + horizon_us then
    local at = binding_at(main)
    granted.binds_at = at > 0 and at or slowed_by(both, now_us)
  end
  return turn, turn_us == math.huge and binding_at(main) or binding
end

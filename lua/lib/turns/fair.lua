-- Keys take turns in the line of the limits that decide slots, by start-time fair queueing (Goyal, Vin and Cheng, 1996).
-- A line of names is a sorted set. The score of a name is its tag: the virtual time at which its next call starts, in us
-- of the limits. The member '' stores the virtual time of the line. The last key of a request is the line of first
-- names. The names below a parent are at <that key>, NAMES_APART and the parent, so that no name is the end of another key.
-- Each draw orders its own calls by the tags of that moment. The pending calls of other replicas have the order of their
-- replica's last draw.
local FAIR_KEPT_MS = 60000
-- Separates the names of a key (src/core/key-path.ts), and the weights of a pending key from its names.
local NAMES_APART, WEIGHTS_BEGIN = '\31', '\4'
-- Without a rate, a call takes no time, so each call counts as this long.
local STEP_WITHOUT_RATE_US = 1000
-- No key has the name CRITICAL. PAID is the end of a Redis key.
local CRITICAL, PAID = '\2', ':paid'

local function new_fair_line(key)
  return { key = key, turns = {}, of = {}, now = 0, started = math.huge, lag_us = 0 }
end

-- Returns the turn of a name in a line. All slot requests of this name share it. `below` is the line of the names below
-- this one. A draw creates many turns, so each has eight fields at most: Lua doubles the memory of a table for the next.
local function turn_in(line, name, is_pending)
  local turn = line.of[name]
  if not turn then
    turn = { line = line, name = name, tag = 0, served = 0, is_new = false, is_pending = false, first = nil, below = nil }
    line.of[name], line.turns[#line.turns + 1] = turn, turn
  end
  if is_pending then turn.is_pending = true end
  return turn
end

-- Returns the turns of a slot request's names, from the first name down.
local function turns_of(top, names, is_pending)
  if not string.find(names, NAMES_APART, 1, true) then return { turn_in(top, names, is_pending) } end
  local line, turns = top, {}
  for name in string.gmatch(names .. NAMES_APART, '([^' .. NAMES_APART .. ']*)' .. NAMES_APART) do
    local parent = turns[#turns]
    if parent then
      parent.below = parent.below or new_fair_line(line.key .. NAMES_APART .. parent.name)
      line = parent.below
    end
    turns[#turns + 1] = turn_in(line, name, is_pending)
  end
  return turns
end

-- Returns the weight of a slot request's name at a level.
local function weight_of(slot_request, level)
  return slot_request.weights and slot_request.weights[level] or 1
end

-- How often the shares of a horizon are corrected for replicas that need less than their share.
local SHARE_ROUNDS = 3
-- The least calls that a replica may start in one draw. With fewer, the calls that wait at other replicas, one of each
-- key at least, last longer than the replicas that draw, and slots stay unused.
local LEAST_CALLS = 4
-- The most of a horizon that it may fill while calls of other replicas are pending, so that it draws again in time.
local MOST_PART = 0.4

-- Returns the part of a horizon that the turns of this replica's keys fill, if its share is that of their weights.
local function part_of_turns(fair, slot_requests, horizon_us)
  local weight, need_us, seen = 0, 0, {}
  for index = 1, #slot_requests do
    local slot_request = slot_requests[index]
    local turn = slot_request.turns[1]
    need_us = need_us + slot_request.wanted * slot_request.class.turn_us
    if not seen[turn] then seen[turn], weight = true, weight + weight_of(slot_request, 1) end
  end
  local own = { weight = weight, need_us = need_us }
  local open, left_us = { own, unpack(fair.others) }, horizon_us
  for _ = 1, SHARE_ROUNDS do
    local all, rest = 0, {}
    for _, each in ipairs(open) do all = all + each.weight end
    local per_weight_us = left_us / all
    own.share_us = per_weight_us * own.weight
    for _, each in ipairs(open) do
      if each.need_us > per_weight_us * each.weight then rest[#rest + 1] = each else left_us = left_us - each.need_us end
    end
    if own.need_us <= own.share_us then return own.need_us / horizon_us end
    if #rest == #open then break end
    open = rest
  end
  return own.share_us / horizon_us
end

-- Reads the pending calls of other replicas. Each stays where it is among the numbers of their turns (lib/turns/turns):
-- fair.ahead_at lists after which number each begins, in their order.
local function read_others(fair, turns, limit_count)
  local orders, chains, least = {}, {}, math.huge
  for _, turn in ipairs(turns) do
    if turn.names ~= '' then
      local at, each, numbers = turn.at, { weight = 0, need_us = 0 }, turn.numbers
      fair.numbers, fair.others[#fair.others + 1] = numbers, each
      for _ = 1, turn.count do
        local order = numbers[at + 1]
        each.need_us, each.weight = each.need_us + numbers[at + limit_count + 3], each.weight + numbers[at + limit_count + 5]
        if order >= 2 * RANK_STEP and order < least then least = order end
        if not chains[order] then orders[#orders + 1], chains[order] = order, at
        elseif type(chains[order]) == 'table' then table.insert(chains[order], at)
        else chains[order] = { chains[order], at } end
        at = at + 1 + turn.width
      end
    end
  end
  table.sort(orders)
  local all, numbers = fair.ahead_at, fair.numbers
  for _, order in ipairs(orders) do
    local chain = chains[order]
    if type(chain) == 'number' then all[#all + 1] = chain
    else
      table.sort(chain, function(a, b)
        local since_us, other_us = numbers[a + limit_count + 2], numbers[b + limit_count + 2]
        if since_us ~= other_us then return since_us < other_us end
        return a < b
      end)
      for _, at in ipairs(chain) do all[#all + 1] = at end
    end
  end
  if least < math.huge then fair.others_us = math.floor((least - 2 * RANK_STEP) / 4) end
end

-- Reads the tags of a line's names. Idle time earns no credit: the tag of a name without pending calls is not before
-- the virtual time. A name that could not use its turns for long has lost them.
local function load_fair_line(line, lag_us)
  -- Calls that were served before their tags were read count from these tags.
  line.lag_us, line.started = lag_us, math.huge
  local turns, names = line.turns, {}
  for index = 1, #turns do names[index] = turns[index].name end
  local scores = redis.call('ZMSCORE', line.key, '', unpack(names))
  local now = tonumber(scores[1] or 0)
  line.now = now
  for index = 1, #turns do
    local turn, score = turns[index], scores[index + 1]
    local known = tonumber(score or 0)
    local least = turn.is_pending and score and now - lag_us or now
    turn.tag, turn.is_new = known > least and known or least, not score or known < least
    if turn.served ~= 0 then line.started = math.min(line.started, turn.tag) end
    if turn.below then load_fair_line(turn.below, lag_us) end
  end
end

-- Calls of one key are ordered by priority, then by arrival.
local function came_before(a, b)
  if a.rank ~= b.rank then return a.rank < b.rank end
  if a.since_us ~= b.since_us then return a.since_us < b.since_us end
  return a.index < b.index
end

local function goes_before(a, b)
  if a.key ~= b.key then return a.key < b.key end
  if a.since_us ~= b.since_us then return a.since_us < b.since_us end
  return a.index < b.index
end

-- The request is nearly always in this order, because its replica knows the tags.
local function put_in_order(slot_requests)
  for index = 2, #slot_requests do
    if not goes_before(slot_requests[index - 1], slot_requests[index]) then return table.sort(slot_requests, goes_before) end
  end
end

local function has_lower_tag(a, b)
  if a.tag ~= b.tag then return a.tag < b.tag end
  return came_before(a, b)
end

-- Sets the tags of slot requests that have a name at this level.
local function set_tags(line, slot_requests, level)
  local several, lists = {}, {}
  for _, turn in ipairs(line.turns) do turn.first = nil end
  for index = 1, #slot_requests do
    local each = slot_requests[index]
    local turn = each.turns[level]
    local list = lists[turn]
    if list then
      list[#list + 1] = each
    elseif turn.first or each.turns[level + 1] then
      -- A list is created only for a second slot request of a name, or for names below it.
      lists[turn], several[#several + 1] = { turn.first or each, turn.first and each }, turn
    else
      turn.first, each.tag = each, turn.tag + turn.served
    end
  end
  for _, turn in ipairs(several) do
    local list, tag = lists[turn], turn.tag + turn.served
    if #list > 1 then table.sort(list, came_before) end
    if turn.below then
      local deeper, own = {}, {}
      for _, each in ipairs(list) do
        if each.turns[level + 1] then deeper[#deeper + 1] = each else own[#own + 1] = each end
      end
      set_tags(turn.below, deeper, level + 1)
      table.sort(deeper, has_lower_tag)
      for _, each in ipairs(deeper) do own[#own + 1] = each end
      list = own
    end
    for _, each in ipairs(list) do
      each.tag = tag
      tag = tag + each.wanted * each.class.turn_us / weight_of(each, level)
    end
  end
end

-- Critical calls, and those within the floor of their key, go before all turns: each as long as it has had less than its
-- rate, by a generic cell rate algorithm. The hash <key>:paid has the time up to which each has had its rate, in us.
local function read_paid(fair, slot_requests, now_us, horizon_us)
  local unread, paid, has_some = {}, {}, false
  for index = 1, #slot_requests do
    local slot_request = slot_requests[index]
    local name = slot_request.rank == 0 and CRITICAL or slot_request.floor_us and slot_request.turns[1].name or nil
    slot_request.first = 2
    if name or slot_request.paid_by then slot_request.paid_by = name end
    if name and not paid[name] then
      paid[name], has_some = fair.paid[name] or 0, true
      if not fair.paid[name] then unread[#unread + 1] = name end
    end
  end
  local kept = #unread > 0 and redis.call('HMGET', fair.key .. PAID, unpack(unread))
  for index, name in ipairs(unread) do
    fair.paid[name] = math.max(tonumber(kept[index] or 0), now_us - horizon_us)
    paid[name] = fair.paid[name]
  end
  if not has_some then return end
  local in_order = { unpack(slot_requests) }
  table.sort(in_order, came_before)
  for _, slot_request in ipairs(in_order) do
    local paid_us = slot_request.paid_by and paid[slot_request.paid_by]
    if paid_us and paid_us <= now_us + horizon_us then
      slot_request.first, slot_request.tag = slot_request.rank == 0 and 0 or 1, paid_us
      -- Calls behind these wait until these are paid for.
      paid[slot_request.paid_by] = paid_us + slot_request.wanted * slot_request.floor_us
    end
  end
end

-- Sets the number by which a slot request is ordered.
local function set_key(slot_request)
  if slot_request.first == 0 then slot_request.key = order_of(0, slot_request.since_us)
  else slot_request.key = turn_order(slot_request.first, slot_request.tag, slot_request.rank) end
end

-- Starts again to count what is ahead, because the order has changed.
local function start_order(fair, limit_count)
  fair.next, fair.sums, fair.slack_us, fair.ahead = 1, {}, {}, {}
  for index = 1, limit_count do fair.sums[index], fair.slack_us[index] = 0, math.huge end
end

-- Puts slot requests in the order of their turns, by the tags of this moment.
local function order_requests(serving, slot_requests)
  local fair = serving.fair
  set_tags(fair, slot_requests, 1)
  read_paid(fair, slot_requests, serving.now_us, serving.horizon_us)
  for _, slot_request in ipairs(slot_requests) do set_key(slot_request) end
  put_in_order(slot_requests)
  fair.in_turn = slot_requests
  start_order(fair, #serving.bucket.shared.limits)
end

-- Reads the tags, which most draws without competition do not need.
local function load_turns(serving)
  local fair = serving.fair
  if fair.is_loaded then return end
  fair.is_loaded = true
  load_fair_line(fair, serving.horizon_us + fair.longest_us)
end

-- Sets the order of a slot request that got no slot, although all seemed to fit, and of those behind it.
local function begin_turns(serving, slot_request, served)
  local fair, left = serving.fair, {}
  if fair.is_loaded then return end
  load_turns(serving)
  for _, each in ipairs(fair.in_turn) do
    if each.index >= slot_request.index then left[#left + 1] = each end
  end
  -- The order is that before the served calls of this slot request, as in draws that begin with turns.
  local function count(by)
    for level, turn in ipairs(slot_request.turns) do
      turn.served = turn.served + by * slot_request.class.turn_us / weight_of(slot_request, level)
    end
  end
  count(-served)
  order_requests(serving, left)
  count(served)
end

-- True if the limits have room for all calls of this draw, and no other replica waits. Then any order will do.
local function needs_no_turns(serving, slot_requests)
  local fair, shared = serving.fair, serving.bucket.shared
  if fair.has_others or serving.pool then return false end
  local opens_us, until_us = opens_at_us(shared, serving.now_us, 0), math.huge
  for _, each in ipairs(slot_requests) do until_us = math.min(until_us, serving.now_us + horizon_of(serving, each.rank)) end
  for index, limit in ipairs(shared.limits) do
    local amount = 0
    for _, each in ipairs(slot_requests) do amount = amount + each.wanted * each.class.costs[index] end
    if amount > 0 and (not RULES[limit.code].is_rate or room_at_us(limit, opens_us, amount) > until_us) then return false end
  end
  return true
end

local function number_requests(slot_requests)
  for index, slot_request in ipairs(slot_requests) do slot_request.index, slot_request.slice = index, slot_request.first end
end

-- Puts the slot requests of a draw in the order of their turns; those that only ask when calls could start come last.
-- Gives the pending calls of other replicas their order at this moment.
local function take_turns(serving, key, limits, names_at)
  local top, slot_requests, rest, longest_us = new_fair_line(key), {}, {}, 0
  top.paid, top.has_paid, top.reordered, top.empty_us, top.lists, top.main_opens_us = {}, false, 0, {}, false, 0
  top.is_loaded, top.longest_us = false, 0
  top.others, top.others_us, top.ahead_at, top.numbers = {}, math.huge, {}, NOTHING
  for _, slot_request in ipairs(serving.slot_requests) do
    local class, names = slot_request.class, ARGV[names_at + slot_request.index]
    slot_request.since_us = since_of(slot_request.since_us, serving.now_us)
    slot_request.turns = turns_of(top, names, serving.slot_requests.pending[slot_request.number])
    if not class.turn_us then
      local step_us = serving.pool and serving.pool.room_of(serving, class).step_us or step_of(limits, class.costs, 0)
      class.turn_us = step_us > 0 and step_us or STEP_WITHOUT_RATE_US
    end
    slot_request.names = names
    if slot_request.weights then slot_request.names = names .. WEIGHTS_BEGIN .. table.concat(slot_request.weights, ',') end
    if slot_request.wanted > 0 then slot_requests[#slot_requests + 1] = slot_request else rest[#rest + 1] = slot_request end
  end
  local line, shared_count = line_of(serving, serving.bucket.shared, serving.own), serving.pool and #serving.pool.scope.limits or #limits
  read_others(top, line.others, shared_count)
  top.has_others, top.limit_count = #top.ahead_at > 0, shared_count
  if #slot_requests > 0 then
    local most_part = top.has_others and MOST_PART or 1
    local least_us = math.huge
    for _, slot_request in ipairs(slot_requests) do least_us = math.min(least_us, LEAST_CALLS * slot_request.class.turn_us) end
    local part = math.max(least_us / serving.horizon_us, part_of_turns(top, slot_requests, serving.horizon_us))
    serving.sharers = 1 / math.min(most_part, part)
  end
  for _, slot_request in ipairs(serving.slot_requests) do
    size_class(serving, limits, slot_request.class)
    if slot_request.rank == 0 then slot_request.floor_us = slot_request.class.turn_us / serving.slot_requests.critical_part end
    longest_us = math.max(longest_us, slot_request.class.turn_us)
  end
  top.longest_us, serving.fair = longest_us, top
  for _, limit in ipairs(limits) do
    if RULES[limit.code].is_rate and not RULES[limit.code].does_drain then top.lists = true end
  end
  if needs_no_turns(serving, slot_requests) then
    top.in_turn = slot_requests
    start_order(top, #limits)
  else
    load_turns(serving)
    order_requests(serving, slot_requests)
  end
  if #rest > 0 then slot_requests = { unpack(slot_requests) } end
  for _, slot_request in ipairs(rest) do slot_requests[#slot_requests + 1] = slot_request end
  serving.slot_requests = slot_requests
  number_requests(slot_requests)
end

-- Goes on in the order of turns up to a call of this replica. Counts the calls of others that are ahead of it.
-- slack_us is how much longer a limit may be used before a call ahead is late.
-- A limit that drains evenly needs no list of the calls ahead. Its room for an amount lies that far before or behind the
-- time at which it has drained.
local function pass_turns(serving, order, since_us)
  local fair, limits, numbers = serving.fair, serving.bucket.shared.limits, serving.fair.numbers
  local all, sums, since_at, opens_us = fair.ahead_at, fair.sums, fair.limit_count + 2, nil
  while true do
    local at = all[fair.next]
    if not at or numbers[at + 1] > order or numbers[at + 1] == order and numbers[at + since_at] >= since_us then return end
    fair.next, opens_us = fair.next + 1, opens_us or opens_at_us(serving.bucket.shared, serving.now_us, 0)
    -- A replica that is late does not hold all others up: its calls still start soon, and its keys go first then.
    local start_us = numbers[at + since_at + 2]
    local latest_us = (start_us > opens_us and start_us or opens_us) + LATE_US
    for index = 1, #limits do
      local amount, limit = numbers[at + 1 + index], limits[index]
      sums[index] = sums[index] + amount
      if amount > 0 and RULES[limit.code].does_drain then
        fair.empty_us[index] = fair.empty_us[index] or RULES[limit.code].earliest(limit, opens_us, limit.capacity, NO_ASKER)
        local slack_us = latest_us - fair.empty_us[index] - (sums[index] - limit.capacity) * limit.period_us / limit.count
        if slack_us < fair.slack_us[index] then fair.slack_us[index] = slack_us end
      end
    end
    if fair.lists then
      local amounts = { unpack(numbers, at + 2, at + 1 + #limits) }
      table.insert(fair.ahead, { order = numbers[at + 1], amounts = amounts, start_us = start_us, sums = { unpack(sums) }, is_exact = true })
    end
  end
end

-- Returns how many calls delay no call ahead.
local function most_in_turn(fair, main, most)
  for index, limit in ipairs(main.scope.limits) do
    local cost = main.costs[index]
    if cost > 0 and fair.slack_us[index] < math.huge then
      most = math.min(most, math.max(0, math.floor(fair.slack_us[index] * limit.count / (cost * limit.period_us))))
    end
  end
  return most
end

-- Notes calls that were booked.
local function use_slack(fair, main, count)
  for index, limit in ipairs(main.scope.limits) do
    local cost = main.costs[index]
    if cost > 0 and RULES[limit.code].does_drain then
      local used_us = count * cost * limit.period_us / limit.count
      fair.slack_us[index] = fair.slack_us[index] - used_us
      if fair.empty_us[index] then fair.empty_us[index] = fair.empty_us[index] + used_us end
    end
  end
end

-- Returns when this many calls could start behind all that is ahead, and the number of the limit that decides.
local function start_in_turn(fair, main, opens_us, count)
  local start_us, binding = opens_us, 0
  for index, limit in ipairs(main.scope.limits) do
    local cost = main.costs[index]
    if cost > 0 and RULES[limit.code].is_rate then
      local room_us = room_at_us(limit, opens_us, fair.sums[index] + count * cost)
      if room_us > start_us then start_us, binding = room_us, index end
    end
  end
  return start_us, binding
end

-- Stores a position for the calls of one slot request in a line of turns: up to the replica's share of a horizon, and
-- one call of each key at least. Otherwise other replicas would serve later calls of that key. Calls of equal cost and
-- equal tags share a position if no call of another replica is between them.
local function add_fair_need(serving, main, slot_request, left, order, turn)
  local line, names, fair = main.line, slot_request.names, serving.fair
  local count = math.min(left, math.max(line.keys[names] and 0 or 1, math.floor((1 - line.needed) * main.flow)))
  if count == 0 or #line.waiting >= MOST_FAIR_NEEDS then return end
  line.needed, line.keys[names] = line.needed + count / main.flow, true
  local needs_lease, own, limits, sums = turn.turn_us == math.huge, slot_request.turns[1], main.scope.limits, fair.sums
  local start_us, span_us = start_in_turn(fair, main, fair.main_opens_us, count), count * slot_request.class.turn_us
  -- The weight of a name counts once in a line, so line.keys also has the turns that were counted.
  local weight = line.keys[own] and 0 or weight_of(slot_request, 1)
  line.keys[own] = true
  local last = line.waiting[#line.waiting]
  if last and last.order == order and last.after == fair.next and last.class == slot_request.class and last.needs_lease == needs_lease then
    for index = 1, #limits do
      local amount = RULES[limits[index].code].is_rate == needs_lease and 0 or count * main.costs[index]
      last.amounts[index], sums[index] = last.amounts[index] + amount, sums[index] + amount
    end
    last.start_us, last.span_us, last.weight = math.max(last.start_us, start_us), last.span_us + span_us, last.weight + weight
    last.names = last.names .. NAMES_JOINED .. names .. SINCE_BEGIN .. slot_request.since_us - last.call_since_us
    return
  end
  local need = {
    order = order, turn_us = turn.turn_us, due_us = turn.due_us, start_us = start_us, amounts = {}, call_since_us = slot_request.since_us,
    names = names, span_us = span_us, weight = weight, after = fair.next, class = slot_request.class, needs_lease = needs_lease,
  }
  -- Calls that wait for a lease leave the rates to calls that need none, and the others leave the leases.
  for index = 1, #limits do
    local amount = RULES[limits[index].code].is_rate == needs_lease and 0 or count * main.costs[index]
    need.amounts[index], sums[index] = amount, sums[index] + amount
  end
  if needs_lease then need.due_us = serving.now_us + WAITER_GONE_US end
  add_need(line, need)
end

-- Adds a position in the line for a slot request behind another one.
local function wait_in_turn(serving, slot_request, line)
  if #line.waiting == 0 or #line.waiting >= MOST_FAIR_NEEDS or (line.needed >= 1 and line.keys[slot_request.names]) then return end
  local class, scope = slot_request.class, line.scope
  local main, order = class.main, line_order(serving, slot_request, 0)
  if not main or main.line ~= line then
    size_class(serving, scope.limits, class)
    main = { scope = scope, line = line, costs = class.costs, flow = class.flow }
  end
  pass_turns(serving, order, slot_request.since_us)
  add_fair_need(serving, main, slot_request, slot_request.wanted, order, line.waiting[#line.waiting])
end

-- The most times that one draw orders its calls again.
local MOST_REORDERED = 6

-- Lets the later calls of a key have the turns of a slot request whose calls wait at a further key. Other replicas do
-- the same, because these calls have no position in the line.
local function skip_turns(serving, slot_request, left)
  local fair, turn, later, rest = serving.fair, slot_request.turns[1], {}, {}
  -- Without tags, all later calls fit in any order, and the reply numbers leases in the order of the request.
  if not fair.is_loaded then return end
  for _, each in ipairs(fair.in_turn) do
    if each.index > slot_request.index then
      rest[#rest + 1] = each
      if each.turns[1] == turn and came_before(slot_request, each) then later[#later + 1] = each end
    end
  end
  if #later == 0 or fair.reordered == MOST_REORDERED then return end
  fair.reordered = fair.reordered + 1
  local all = serving.slot_requests
  if slot_request.first == 2 and #slot_request.turns == 1 then
    for _, each in ipairs(later) do
      if each.first == 2 then each.tag = each.tag - left * slot_request.class.turn_us / weight_of(slot_request, 1) end
      set_key(each)
    end
    put_in_order(rest)
    fair.in_turn = rest
    start_order(fair, #serving.bucket.shared.limits)
  else
    order_requests(serving, rest)
  end
  for index, each in ipairs(rest) do all[slot_request.index + index] = each end
  number_requests(all)
end

-- Returns the asker of pending calls that begin after this number.
local function asker_at(turns, at)
  for _, turn in ipairs(turns) do
    if at >= turn.at and at < turn.at + turn.count * (1 + turn.width) then return turn.asker end
  end
end

-- Orders the replicas that wait for leases by the turn of their first call. own_waits says whether this one does.
local function order_waiters(serving, own_waits)
  local askers, seen, fair, own_key = {}, {}, serving.fair, nil
  local scope, waited = serving.pool and serving.pool.scope or serving.bucket.shared, false
  for _, limit in ipairs(scope.limits) do waited = waited or RULES[limit.code].set_positions ~= nil end
  if not waited then return end
  local function add(asker)
    if not seen[asker] then askers[#askers + 1], seen[asker] = asker, true end
  end
  if own_waits and fair.in_turn[1] then own_key = fair.in_turn[1].key end
  for _, at in ipairs(fair.ahead_at) do
    if own_key and own_key < fair.numbers[at + 1] then add(serving.asker) end
    add(asker_at(serving.bucket.shared.line.others, at))
  end
  if own_key then add(serving.asker) end
  for _, limit in ipairs(scope.limits) do
    local set_positions = RULES[limit.code].set_positions
    if set_positions and #askers > 0 then set_positions(limit, askers, own_waits and serving.asker or '', serving.now_us) end
  end
end

-- Books the calls of a slot request that were served.
local function count_turns(fair, slot_request, count)
  if slot_request.first < 2 then fair.paid[slot_request.paid_by], fair.has_paid = fair.paid[slot_request.paid_by] + count * slot_request.floor_us, true end
  local turns = slot_request.turns
  for level = 1, #turns do
    local turn = turns[level]
    local line, tag = turn.line, turn.tag + turn.served
    -- What goes before all turns does not say how far these have come.
    if slot_request.first == 2 and tag < line.started then line.started = tag end
    turn.served = turn.served + count * slot_request.class.turn_us / weight_of(slot_request, level)
  end
end

local function save_fair_line(line)
  local scores, most, now, count = {}, line.others_us or math.huge, line.now, 0
  for _, turn in ipairs(line.turns) do
    -- The tag of a name that began to wait is stored, so that its turn comes nearer while others are served.
    if turn.served > 0 or turn.is_new then
      turn.tag = turn.tag + turn.served
      scores[count + 1], scores[count + 2], count = turn.tag, turn.name, count + 2
    end
    if turn.below then save_fair_line(turn.below) end
  end
  if count > 0 then
    if line.started < math.huge then line.now = math.max(now, math.min(line.started, most)) end
    scores[count + 1], scores[count + 2] = line.now, ''
    redis.call('ZADD', line.key, unpack(scores))
    -- Removes the names that have lost their turns, once per lag_us.
    if math.floor(line.now / line.lag_us) > math.floor(now / line.lag_us) then
      redis.call('ZREMRANGEBYSCORE', line.key, '-inf', string.format('(%.17g', line.now - line.lag_us))
    end
    redis.call('PEXPIRE', line.key, FAIR_KEPT_MS)
  end
end

local function save_fair(fair)
  if not fair.is_loaded then return end
  save_fair_line(fair)
  if not fair.has_paid then return end
  local pairs_of = {}
  for name, paid_us in pairs(fair.paid) do
    pairs_of[#pairs_of + 1] = name
    pairs_of[#pairs_of + 1] = string.format('%.0f', paid_us)
  end
  redis.call('HSET', fair.key .. PAID, unpack(pairs_of))
  redis.call('PEXPIRE', fair.key .. PAID, FAIR_KEPT_MS)
end

-- For a reply of a draw that used turns: the virtual time, and per slot request, in the order of the request, the number of its first lease and the
-- tag of its next call at each level.
local function packed_tags(serving, slot_requests)
  if not serving.fair.is_loaded then return nil end
  local tags, count = { math.floor(serving.fair.now) }, 1
  for index = 1, #slot_requests do
    local turns = slot_requests[index].turns
    tags[count + 1], count = slot_requests[index].first_lease, count + 1
    for level = 1, #turns do tags[count + level] = math.floor(turns[level].tag) end
    count = count + #turns
  end
  return pack_numbers(tags)
end

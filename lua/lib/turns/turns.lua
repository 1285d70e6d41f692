-- Counts the replicas that draw from a bucket, and orders them: the most urgent call first, then the longest wait.
-- Here a replica is called an asker, and is identified by its name.
-- The turns of a scope are stored in order in one string at scope.turns_key. First come doubles, and then the names
-- of the askers, each after a space. The string expires a minute after the last turn. The doubles:
--   number of doubles; then per turn: since_us due_us start_us needs amounts, and per need its order and an amount of
--   each limit.
-- Where keys take turns, four more amounts follow: call_since_us span_us start_us weight. The virtual time that the
-- need takes is its span_us. Its weight is the sum of the weights of the first names of its keys, without names that an
-- earlier need has. Then the string ends with the keys of each turn, after a TURN_BEGIN. There, each need has its first
-- key after a NAMES_BEGIN. Each further key has a NAMES_JOINED before it. After it come a SINCE_BEGIN and how much later
-- than the first one it began to wait, in us.
local WINDOW_US, KEEP_TURNS_MS = 1000000, 60000
-- The distance between two ranks in an order. It exceeds every time of a bucket's clock until 2041. With four ranks,
-- orders are still exact as doubles.
local RANK_STEP = 2 ^ 51
-- Calls that arrived in the same millisecond count as simultaneous, so their askers take turns.
local TOGETHER_US = 1000
-- The most turns, needs of one asker, and numbers that are stored. Lua unpacks only a few thousand values at once.
local MOST_TURNS, MOST_NEEDS, MOST_FAIR_NEEDS, MOST_NUMBERS = 128, 8, 24, 6000

local NO_TURNS = {}
-- Names contain no control characters.
local NAMES_BEGIN, TURN_BEGIN, NAMES_JOINED, SINCE_BEGIN = '\3', '\5', '\6', '\7'
-- The number of the amounts that follow those of the limits where keys take turns.
local TURN_AMOUNTS = 4

-- Counts the askers in each second. Each asker sends the time of its last draw, so no list of askers is needed.
local function count_asker(bucket, drew_us)
  local age = bucket.clock_us - bucket.window_us
  if age >= WINDOW_US then
    bucket.alive_before = age < 2 * WINDOW_US and bucket.alive or 0
    bucket.alive = 0
    bucket.window_us = bucket.clock_us
  end
  if drew_us == 0 or drew_us < bucket.window_us then bucket.alive = bucket.alive + 1 end
end

-- Returns an even share of a horizon's slots. A lone asker leaves a quarter of them, so that it can draw again before
-- its slots run out.
local function share_of(slots, alive)
  return math.max(1, math.floor(math.min(slots * 0.75, slots / alive)))
end

-- Returns the order of a call: first by its rank, then by the time when it began to wait, in us.
local function order_of(rank, since_us)
  return rank * RANK_STEP + since_us - since_us % TOGETHER_US
end

-- Returns the turns of a scope in their order, without turns that were missed before missed_us. A turn that was read has
-- the place of its needs among the numbers of the string: they begin after the number `at`.
local function read_turns(scope, missed_us)
  local packed = scope.turns_until_us >= missed_us and redis.call('GET', scope.turns_key)
  if not packed then return NO_TURNS end
  local count = struct.unpack('<d', packed)
  local numbers, at, turns = { struct.unpack('<' .. string.rep('d', count), packed) }, 1, {}
  local texts = string.sub(packed, count * 8 + 1)
  local names_at, names, index = string.find(texts, TURN_BEGIN, 1, true), nil, 0
  if names_at then
    names = {}
    for each in string.gmatch(string.sub(texts, names_at), TURN_BEGIN .. '([^' .. TURN_BEGIN .. ']*)') do names[#names + 1] = each end
    texts = string.sub(texts, 1, names_at - 1)
  end
  for asker in string.gmatch(texts, '%S+') do
    local since_us, due_us, start_us, need_count, width = unpack(numbers, at + 1, at + 5)
    index = index + 1
    -- An earlier build has stored names that this one cannot read.
    if not due_us then break end
    if due_us >= missed_us then
      turns[#turns + 1] = {
        asker = asker, since_us = since_us, due_us = due_us, start_us = start_us, order = numbers[at + 6], width = width, count = need_count,
        packed = packed, numbers = numbers, at = at + 5, names = names and names[index] or '', needs = nil,
      }
    end
    at = at + 5 + need_count * (1 + width)
  end
  return turns
end

-- Returns the needs of a turn. Where keys take turns, the amounts of limits are the first limit_count amounts.
local function needs_of(turn, limit_count)
  if turn.needs then return turn.needs end
  local numbers, at, needs, names = turn.numbers, turn.at, {}, {}
  for each in string.gmatch(turn.names, NAMES_BEGIN .. '([^' .. NAMES_BEGIN .. ']*)') do names[#names + 1] = each end
  for index = 1, turn.count do
    local need = {
      order = numbers[at + 1], amounts = { unpack(numbers, at + 2, at + 1 + turn.width) }, call_since_us = 0, start_us = nil, names = names[index],
    }
    if need.names then need.call_since_us, need.start_us = numbers[at + 2 + limit_count], numbers[at + 4 + limit_count] end
    needs[index], at = need, at + 1 + turn.width
  end
  turn.needs = needs
  return needs
end

-- Returns the turns of other askers, except those made under a different number of limits; and whether keys take turns.
local function others_of(turns, asker, limit_count, is_fair)
  local others, are_fair = NO_TURNS, false
  for index = 1, #turns do
    local turn = turns[index]
    local is_turn_fair = turn.names ~= '' and turn.width == limit_count + TURN_AMOUNTS
    are_fair = are_fair or is_turn_fair
    if turn.asker ~= asker and (is_turn_fair or turn.names == '' and turn.width == limit_count) then
      if others == NO_TURNS then others = {} end
      -- Calls that take no turns wait for all that do. The reply reports the turns to their process.
      if is_turn_fair and not is_fair then
        for _, need in ipairs(needs_of(turn, limit_count)) do need.order = -1 end
      end
      others[#others + 1] = turn
    end
  end
  return others, are_fair
end

-- Returns the string and the names of a turn that was not read, as they are stored.
local function pack_turn(turn)
  local needs, names = turn.needs, {}
  local width = #needs[1].amounts + (needs[1].names and TURN_AMOUNTS or 0)
  local numbers, count = { turn.since_us, turn.due_us, turn.start_us, #needs, width }, 5
  for each = 1, #needs do
    local need = needs[each]
    local amounts = need.amounts
    numbers[count + 1], count = need.order, count + 1
    for index = 1, #amounts do numbers[count + index] = amounts[index] end
    count = count + #amounts
    if need.names then
      names[each] = NAMES_BEGIN .. need.names
      numbers[count + 1], numbers[count + 2], numbers[count + 3] = need.call_since_us, need.span_us, need.start_us
      numbers[count + 4], count = need.weight, count + 4
    end
  end
  return struct.pack('<' .. string.rep('d', count), unpack(numbers)), table.concat(names)
end

local function write_turns(scope, turns, now_us)
  if #turns == 0 then return redis.call('DEL', scope.turns_key) end
  local parts, askers, names, has_names, count = { '' }, {}, {}, false, 1
  for index = 1, math.min(#turns, MOST_TURNS) do
    local turn, packed = turns[index], nil
    if turn.at then
      packed, names[index] = string.sub(turn.packed, turn.at * 8 - 39, (turn.at + turn.count * (1 + turn.width)) * 8), turn.names
    else
      packed, names[index] = pack_turn(turn)
    end
    if count + #packed / 8 > MOST_NUMBERS then
      names[index] = nil
      break
    end
    count, parts[index + 1], askers[index] = count + #packed / 8, packed, ' ' .. turn.asker
    has_names = has_names or names[index] ~= ''
  end
  parts[1] = struct.pack('<d', count)
  local text = table.concat(parts) .. table.concat(askers)
  if has_names then text = text .. TURN_BEGIN .. table.concat(names, TURN_BEGIN) end
  local keep_ms = math.ceil((scope.turns_until_us - now_us) / 1000) + KEEP_TURNS_MS
  redis.call('SET', scope.turns_key, text, 'PX', string.format('%.0f', keep_ms))
end

-- Sets or removes an asker's turn among all turns of the scope. Returns the time since when the asker waits; 0
-- without a turn.
local function keep_turn(scope, all, asker, own_since_us, turn, now_us)
  if not turn and own_since_us == 0 then return 0 end
  local turns = {}
  local most = turn and turn.needs[1].names and MOST_FAIR_NEEDS or MOST_NEEDS
  if turn and #turn.needs > most then turn.needs = { unpack(turn.needs, 1, most) } end
  local order, is_placed = turn and turn.needs[1].order, not turn
  for index = 1, #all do
    local each = all[index]
    if each.asker ~= asker then
      local its = each.order
      if not is_placed and (order < its or (order == its and turn.since_us < each.since_us)) then
        turns[#turns + 1], is_placed = turn, true
      end
      turns[#turns + 1] = each
    end
  end
  if not is_placed then turns[#turns + 1] = turn end
  if turn then scope.turns_until_us = math.max(scope.turns_until_us, turn.due_us) end
  write_turns(scope, turns, now_us)
  return turn and turn.since_us or 0
end

-- Removes the turn that an asker gives up.
local function leave_turn(scope, asker, since_us, now_us)
  local turns = read_turns(scope, 0)
  for index, turn in ipairs(turns) do
    if turn.asker == asker and turn.since_us == since_us then
      table.remove(turns, index)
      return write_turns(scope, turns, now_us)
    end
  end
end

-- Returns the turns before a call of this order. Each returned turn has, per limit, the sum of its own need and the
-- needs of all earlier turns. Among simultaneous calls, the turn that has waited longest is first.
local function ahead_of(turns, order, own_since_us, limit_count)
  local before, is_sorted = {}, true
  for at = 1, #turns do
    local turn, after = turns[at], nil
    local needs = needs_of(turn, limit_count)
    for index = 1, #needs do
      local need = needs[index]
      if index > 1 then
        local sum = {}
        for each, amount in ipairs(need.amounts) do sum[each] = amount + (after and after[each] or 0) end
        after, is_sorted = sum, false
      end
      if need.order < order or (need.order == order and turn.since_us < own_since_us) then
        if #before > 0 and need.order < before[#before].order then is_sorted = false end
        before[#before + 1] = {
          order = need.order, amounts = need.amounts, start_us = need.start_us or turn.start_us, after = not need.start_us and after or nil,
          index = #before, sums = nil, is_exact = need.start_us ~= nil,
        }
      end
    end
  end
  if not is_sorted then
    table.sort(before, function(a, b)
      if a.order ~= b.order then return a.order < b.order end
      return a.index < b.index
    end)
  end
  local sums = nil
  for index = 1, #before do
    local each = before[index]
    if sums then
      local amounts, all = each.amounts, {}
      for limit = 1, #amounts do all[limit] = amounts[limit] + (sums[limit] or 0) end
      sums = all
    else
      sums = each.amounts
    end
    each.sums = sums
  end
  return before
end

-- Returns how much longer a limit needs to allow this additional amount, in us.
local function after_us(limit, amount)
  return RULES[limit.code].does_drain and math.ceil((amount * limit.period_us) / limit.count) or 0
end

-- Returns when a limit has room for an amount, which may exceed what the limit can allow at once.
local function room_at_us(limit, at_us, amount)
  local earliest, beyond = RULES[limit.code].earliest, amount - limit.capacity
  if beyond <= 0 then return earliest(limit, at_us, amount, NO_ASKER) end
  return earliest(limit, at_us, limit.capacity, NO_ASKER) + math.ceil((beyond * limit.period_us) / limit.count)
end

-- How late the calls of a turn may start where keys take turns.
local LATE_US = 25000

-- True if booking this call delays no earlier turn. Each earlier turn must still have its room by until_us, or by the
-- time in its asker's last reply.
local function is_in_time(scope, before, costs, opens_us, until_us)
  local limits, amounts = scope.limits, before.amounts
  for index = 1, #limits do
    local limit, cost = limits[index], costs[index]
    if cost > 0 and (amounts[index] or 0) > 0 and RULES[limit.code].is_rate then
      local deadline_us = until_us
      if before.is_exact then
        deadline_us = before.start_us + LATE_US
      elseif before.start_us > until_us or before.after then
        deadline_us = math.max(until_us, before.start_us + after_us(limit, before.after and before.after[index] or 0))
      end
      if room_at_us(limit, opens_us, before.sums[index] + cost) > deadline_us then return false end
    end
  end
  return true
end

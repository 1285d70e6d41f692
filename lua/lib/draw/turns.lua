-- How many replicas draw from a bucket, and which of them comes first: the one whose call is the most urgent, and has
-- waited longest. Here a replica is an asker, by the name that it asks with. Twin of src/core/draw/turns.ts.
-- A scope's turns are a zset at scope.turns_key: the name of a turn -> the order of its first call. Its name is
-- "since due start limits amount... asker", with "order amount..." for each other need before the asker.
local WINDOW_US, KEEP_TURNS_MS = 1000000, 60000
-- Above every time of a bucket's clock until 2041, and small enough for four ranks to be whole numbers.
local RANK_STEP = 2 ^ 51
-- Calls that came in the same millisecond came together: their askers take turns.
local TOGETHER_US = 1000
-- More turns than this are not read, and more needs of one asker are not kept.
local MOST_READ, MOST_NEEDS = 64, 8

-- Counts the askers of each second. Each says when it last drew, so no list of them is needed.
local function count_asker(bucket, drew_us)
  local age = bucket.clock_us - bucket.window_us
  bucket.is_new_window = age >= WINDOW_US
  if bucket.is_new_window then
    bucket.alive_before = age < 2 * WINDOW_US and bucket.alive or 0
    bucket.alive = 0
    bucket.window_us = bucket.clock_us
  end
  if drew_us == 0 or drew_us < bucket.window_us then bucket.alive = bucket.alive + 1 end
end

-- An even share of a horizon. A lone asker leaves a quarter, so that it can ask again before its slots run out.
local function share_of(slots, alive)
  return math.max(1, math.floor(math.min(slots * 0.75, slots / alive)))
end

-- The order of a call: by its rank, and then by the time since when it waits, in us.
local function order_of(rank, since_us)
  return rank * RANK_STEP + since_us - since_us % TOGETHER_US
end

local function read_due(name)
  return tonumber(string.match(name, '^%d+ (%d+)'))
end

-- A turn from its name and the order of its first call; nil if it was made under another count of limits.
local function read_turn(name, order, limit_count)
  local numbers, count = {}, 0
  for number in string.gmatch(name, '(%d+) ') do
    count = count + 1
    numbers[count] = tonumber(number)
  end
  if numbers[4] ~= limit_count then return nil end
  local turn, at = { since_us = numbers[1], start_us = numbers[3], needs = {} }, 4
  while at + limit_count <= count do
    local amounts = {}
    for index = 1, limit_count do amounts[index] = numbers[at + index] end
    turn.needs[#turn.needs + 1] = { order = order, amounts = amounts }
    at = at + limit_count + 1
    order = numbers[at]
  end
  return turn
end

-- The turns of other askers, in their order. Those that were missed are forgotten.
local function read_turns(scope, asker, missed_us)
  local turns = {}
  if scope.turns_until_us < missed_us then return turns end
  local found = redis.call('ZRANGE', scope.turns_key, 0, MOST_READ - 1, 'WITHSCORES')
  for index = 1, #found, 2 do
    local name = found[index]
    if read_due(name) < missed_us then
      redis.call('ZREM', scope.turns_key, name)
    elseif string.match(name, '%S+$') ~= asker then
      turns[#turns + 1] = read_turn(name, tonumber(found[index + 1]), #scope.limits)
    end
  end
  return turns
end

local function name_of(turn)
  local parts = { string.format('%.0f %.0f %.0f %d', turn.since_us, turn.due_us, turn.start_us, #turn.needs[1].amounts) }
  for index, need in ipairs(turn.needs) do
    if index > MOST_NEEDS then break end
    if index > 1 then parts[#parts + 1] = string.format('%.0f', need.order) end
    for _, amount in ipairs(need.amounts) do parts[#parts + 1] = string.format('%.0f', amount) end
  end
  parts[#parts + 1] = turn.asker
  return table.concat(parts, ' ')
end

-- Forgets askers that never came back.
local function forget_missed(turns_key, missed_us)
  for _, name in ipairs(redis.call('ZRANGE', turns_key, 0, -1)) do
    if read_due(name) < missed_us then redis.call('ZREM', turns_key, name) end
  end
end

-- Sets the asker's turn, or takes it away. Returns its name.
local function keep_turn(scope, own_name, turn, missed_us, now_us)
  local name = turn and name_of(turn) or ''
  if own_name ~= name and own_name ~= '' then redis.call('ZREM', scope.turns_key, own_name) end
  if not turn then return name end
  redis.call('ZADD', scope.turns_key, string.format('%.0f', turn.needs[1].order), name)
  scope.turns_until_us = math.max(scope.turns_until_us, turn.due_us)
  if missed_us then forget_missed(scope.turns_key, missed_us) end
  redis.call('PEXPIRE', scope.turns_key, math.ceil((scope.turns_until_us - now_us) / 1000) + KEEP_TURNS_MS)
  return name
end

-- What comes before a call of this order, in order, with the sums of what it and all before it need of each limit. Of
-- those that came together, the turn that has waited longest does.
local function ahead_of(turns, order, own_since_us)
  local before = {}
  if #turns == 0 then return before end
  for _, turn in ipairs(turns) do
    local after = {}
    for index, need in ipairs(turn.needs) do
      if index > 1 then
        local sum = {}
        for each, amount in ipairs(need.amounts) do sum[each] = amount + (after[each] or 0) end
        after = sum
      end
      if need.order < order or (need.order == order and turn.since_us < own_since_us) then
        before[#before + 1] = {
          order = need.order, amounts = need.amounts, start_us = turn.start_us, after = after, index = #before,
        }
      end
    end
  end
  table.sort(before, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.index < b.index
  end)
  local sums = {}
  for _, each in ipairs(before) do
    each.sums = {}
    for index, amount in ipairs(each.amounts) do each.sums[index] = amount + (sums[index] or 0) end
    sums = each.sums
  end
  return before
end

-- How much later a limit gives this amount more.
local function after_us(limit, amount)
  return RULES[limit.code].does_drain and math.ceil((amount * limit.period_us) / limit.count) or 0
end

-- When a limit has room for an amount, which may be more than it can ever give at once.
local function room_at_us(limit, at_us, amount)
  local earliest, beyond = RULES[limit.code].earliest, amount - limit.capacity
  local drawer = { asker = '', now_us = at_us, order = 0, lease = 0 }
  if beyond <= 0 then return earliest(limit, at_us, amount, drawer) end
  return earliest(limit, at_us, limit.capacity, drawer) + math.ceil((beyond * limit.period_us) / limit.count)
end

-- Whether what comes before a call has all the room it needs in time if this is booked before it: until until_us, or when
-- its asker was told.
local function is_in_time(scope, before, costs, opens_us, until_us)
  for index, limit in ipairs(scope.limits) do
    local is_needed = costs[index] > 0 and (before.amounts[index] or 0) > 0
    if is_needed and RULES[limit.code].is_rate then
      local deadline_us = math.max(until_us, before.start_us + after_us(limit, before.after[index] or 0))
      if room_at_us(limit, opens_us, before.sums[index] + costs[index]) > deadline_us then return false end
    end
  end
  return true
end

-- A budget: an amount for each calendar period, or for some days up to today, in millionths of its unit. Separate Redis
-- keys store its state, because the state must outlive a change of the policy. a, b and c of the limit stay 0.
-- keys[1] hash, the ledger. Its field start_us is the start of the newest period, or of the newest day. Its field spent
--         is what is spent, including what is reserved. Its field warned is the number of reported thresholds. The other
--         fields are amounts. For rolling days, "day <start_us>" and "grant <start_us>" replace spent and granted. The
--         field "for <asker> <slot_us>" is what calls at this slot have reserved.
-- keys[2] zset: "<asker> <slot_us>" -> us at which the reservation ends.
-- keys[3] zset: the name of each ledger of the bucket -> us at which the ledger expires.
-- The log of warnings is keys[4], a zset: "<part> <spent> <total> <count> <end_us> <ledger>" -> the number of the warning.
-- Numbers grow, and are at least the us of their warnings.
MAKERS[7] = function()
  local FIELDS = { 'start_us', 'spent', 'carried', 'granted', 'reserved', 'warned' }
  local DAY_US, MOST_GRANTED, MOST_KEPT = 86400000000, 2000000000000000, 100
  -- The most reservations that are given back at once: for a call that does not fit, and with each other change.
  local MOST_ENDED, FEW_ENDED = 1000, 20
  -- How many warnings the log keeps, and for how long: a week.
  local MOST_LOGGED, LOGGED_US = 10000, 604800000000

  local function text_of(number)
    return string.format('%.0f', number)
  end

  local function ledger_of(limit)
    local ledger = limit.ledger
    if ledger then return ledger end
    ledger = { days = {}, grants = {}, holds = {} }
    if limit.terms.day_count == 0 then
      local found = redis.call('HMGET', limit.keys[1], unpack(FIELDS))
      for index, name in ipairs(FIELDS) do ledger[name] = tonumber(found[index] or 0) end
    else
      for _, name in ipairs(FIELDS) do ledger[name] = 0 end
      local found = redis.call('HGETALL', limit.keys[1])
      for at = 1, #found, 2 do
        local name, value = found[at], found[at + 1]
        local kind, start = string.match(name, '^(%a+) (%d+)$')
        if kind == 'day' then ledger.days[tonumber(start)] = tonumber(value)
        elseif kind == 'grant' then ledger.grants[tonumber(start)] = tonumber(value)
        elseif ledger[name] then ledger[name] = tonumber(value) end
      end
    end
    limit.ledger = ledger
    return ledger
  end

  -- Returns the start and the end of the period, or for rolling days of the day, that contains a time. The asker
  -- computes `resets`, because Redis knows no time zones. Times beyond them are estimated.
  local function period_at(limit, at_us)
    local is_rolling = limit.terms.day_count > 0
    local period_us = is_rolling and DAY_US or limit.period_us
    -- The resets begin with today. Only the list of rolling days also has the days before.
    local resets = is_rolling and at_us < limit.resets[1] and limit.terms.days or limit.resets
    for index = 1, #resets do
      if resets[index] > at_us then return index > 1 and resets[index - 1] or resets[1] - period_us, resets[index] end
    end
    local last_us = resets[#resets]
    local start_us = last_us + math.floor((at_us - last_us) / period_us) * period_us
    return start_us, start_us + period_us
  end

  -- Returns the number of periods from the newest period of the ledger to one that starts at start_us. A change of
  -- the time zone moves a start by hours, so the number is rounded.
  local function periods_since(limit, ledger, start_us)
    return math.floor((start_us - ledger.start_us) / limit.period_us + 0.5)
  end

  -- Returns the first day that counts for rolling days at a time.
  local function first_day_at(limit, at_us)
    local days, first = limit.terms.days, 1
    while days[first + limit.terms.day_count] and days[first + limit.terms.day_count] <= at_us do first = first + 1 end
    return days[first]
  end

  -- Adds the amounts of the days from first_us on.
  local function sum_since(amounts, first_us)
    local sum = 0
    for start_us, amount in pairs(amounts) do
      if start_us >= first_us then sum = sum + amount end
    end
    return sum
  end

  -- Returns what the budget holds at a time, without changing it.
  local function view_at(limit, at_us)
    local ledger, start_us, end_us = ledger_of(limit), period_at(limit, at_us)
    if limit.terms.day_count > 0 then
      local first_us = first_day_at(limit, at_us)
      local spent, granted = sum_since(ledger.days, first_us), sum_since(ledger.grants, first_us)
      return { start_us = start_us, end_us = end_us, spent = spent, carried = 0, granted = granted,
        total = limit.count + granted, first_us = first_us }
    end
    local passed = ledger.start_us > 0 and periods_since(limit, ledger, start_us)
    if passed and passed <= 0 then
      if passed < 0 then start_us, end_us = period_at(limit, ledger.start_us) end
      return { start_us = start_us, end_us = end_us, spent = ledger.spent, carried = ledger.carried, granted = ledger.granted,
        total = limit.count + ledger.carried + ledger.granted, is_past = passed < 0 }
    end
    local carried = 0
    if passed and limit.terms.most_carried > 0 then
      local rest = math.max(0, limit.count + ledger.carried - ledger.spent)
      carried = math.min(limit.terms.most_carried, rest + (passed - 1) * limit.count)
    end
    return { start_us = start_us, end_us = end_us, spent = 0, carried = carried, granted = 0,
      total = limit.count + carried, is_new = true }
  end

  -- Returns the first time after at_us at which the cost fits.
  local function later_fit(limit, at_us, cost)
    local times = limit.terms.day_count > 0 and limit.terms.days or limit.resets
    for index = 1, #times do
      if times[index] > at_us then
        local view = view_at(limit, times[index])
        if view.spent + cost <= view.total then return math.max(times[index], view.is_past and view.start_us or 0) end
      end
    end
    return math.max(at_us, times[#times]) + limit.period_us
  end

  -- True if what was reserved at a slot counts in the newest period.
  local function is_in_ledger(limit, slot_us)
    return limit.terms.day_count > 0 or slot_us >= limit.ledger.start_us
  end

  -- Returns the first reservations that have ended although no call has settled them.
  local function ended_reservations(limit, now_us, most)
    local names, ended, fields = redis.call('ZRANGEBYSCORE', limit.keys[2], '-inf', text_of(now_us), 'LIMIT', 0, most), {}, {}
    if #names == 0 then return ended end
    for index, name in ipairs(names) do fields[index] = 'for ' .. name end
    local amounts = redis.call('HMGET', limit.keys[1], unpack(fields))
    for index, name in ipairs(names) do
      local slot_us = tonumber(string.match(name, '%d+$'))
      ended[index] = { name = name, field = fields[index], amount = tonumber(amounts[index] or 0), slot_us = slot_us }
    end
    return ended
  end

  local function add_to_day(limit, at_us, amount)
    local ledger, start_us = limit.ledger, period_at(limit, at_us)
    ledger.days[start_us] = math.max(0, (ledger.days[start_us] or 0) + amount)
  end

  -- Makes the period at a time the newest one of the ledger.
  local function begin_period(limit, view)
    local ledger = limit.ledger
    if not view.is_new then return end
    ledger.start_us, ledger.spent, ledger.carried, ledger.granted = view.start_us, 0, view.carried, 0
    ledger.reserved, ledger.warned, ledger.is_begun = 0, 0, true
  end

  -- Adds an amount to what is spent at a time. A negative amount is ignored if the period of that time is over.
  local function spend(limit, at_us, amount)
    local view = view_at(limit, at_us)
    if amount < 0 and view.is_past then return end
    begin_period(limit, view)
    if limit.terms.day_count > 0 then add_to_day(limit, at_us, amount)
    else limit.ledger.spent = math.max(0, view.spent + amount) end
    limit.ledger.is_changed = true
  end

  -- Ends a reservation, in whole or in part. Returns false if it was ended before. The amount stays spent.
  local function end_reservation(limit, name, slot_us, amount)
    local ledger, field = ledger_of(limit), 'for ' .. name
    local known = tonumber(redis.call('HMGET', limit.keys[1], field)[1] or 0)
    if known < amount then return false end
    if known == amount then
      redis.call('HDEL', limit.keys[1], field)
      redis.call('ZREM', limit.keys[2], name)
    else
      redis.call('HSET', limit.keys[1], field, text_of(known - amount))
    end
    if is_in_ledger(limit, slot_us) then ledger.reserved = math.max(0, ledger.reserved - amount) end
    ledger.is_changed = true
    return true
  end

  -- Returns how many thresholds are reached, and the amount that counts for them. What is only reserved does not count.
  local function reached_at(limit, view)
    local spent, reached = view.spent - limit.ledger.reserved, 0
    for index, part in ipairs(limit.terms.warn_at) do
      if spent * 1000000 >= part * view.total then reached = index end
    end
    return reached, spent
  end

  -- Adds a warning to the log, which webhook senders read. Keeps the newest MOST_LOGGED of the last LOGGED_US.
  local function log_warning(limit, now_us, crossed)
    local log, numbers = limit.keys[4], {}
    local last = redis.call('ZREVRANGE', log, 0, 0, 'WITHSCORES')
    for index, number in ipairs({ crossed.part, crossed.spent, crossed.total, limit.count, crossed.end_us }) do
      numbers[index] = text_of(number)
    end
    local number = math.max(now_us, tonumber(last[2] or 0) + 1)
    redis.call('ZADD', log, text_of(number), table.concat(numbers, ' ') .. ' ' .. limit.keys[1])
    redis.call('ZREMRANGEBYSCORE', log, '-inf', text_of(now_us - LOGGED_US))
    redis.call('ZREMRANGEBYRANK', log, 0, -MOST_LOGGED - 1)
    redis.call('PEXPIRE', log, text_of(LOGGED_US / 1000))
  end

  -- Adds the thresholds that are reached now, and were not reported in this period, to limit.crossed. Does nothing if
  -- `thresholds` is 'later', for a script that cannot report them. Writes no warning if it is 'known'.
  local function note_thresholds(limit, view, now_us, thresholds)
    local ledger, reached, spent = limit.ledger, reached_at(limit, view)
    if limit.terms.day_count > 0 and ledger.start_us < view.start_us then
      ledger.start_us, ledger.warned, ledger.is_begun = view.start_us, math.min(ledger.warned, reached), true
    end
    if thresholds == 'later' then return end
    for index = ledger.warned + 1, reached do
      local crossed = { part = limit.terms.warn_at[index], spent = spent, total = view.total, end_us = view.end_us }
      limit.crossed = limit.crossed or {}
      limit.crossed[#limit.crossed + 1] = crossed
      if thresholds ~= 'known' then log_warning(limit, now_us, crossed) end
    end
    ledger.warned = math.max(ledger.warned, reached)
  end

  -- Writes the reservations of this run of the script. Redis keeps the set of their ends as long as the ledger, so that
  -- each reservation is found and given back.
  local function save_reservations(limit, now_us)
    local ends, has_some = text_of(now_us + limit.terms.reserve_us), false
    for name, amount in pairs(limit.ledger.holds) do
      local known = tonumber(redis.call('HMGET', limit.keys[1], 'for ' .. name)[1] or 0)
      redis.call('HSET', limit.keys[1], 'for ' .. name, text_of(known + amount))
      redis.call('ZADD', limit.keys[2], ends, name)
      has_some = true
    end
    if has_some then redis.call('PEXPIRE', limit.keys[2], text_of(redis.call('PTTL', limit.keys[1]))) end
    limit.ledger.holds = {}
  end

  -- Sets how long Redis keeps the ledger: at least a day beyond the time at which its amounts no longer count. With
  -- carry-over, these are the periods in which the carried amount can still grow, and two more, but at most MOST_KEPT.
  local function keep(limit, view, now_us)
    local ledger, left_us = limit.ledger, view.end_us - now_us + DAY_US
    if limit.terms.day_count > 0 then left_us = left_us + limit.period_us end
    if limit.terms.most_carried > 0 then
      left_us = left_us + math.min(MOST_KEPT, math.ceil(limit.terms.most_carried / limit.count) + 2) * limit.period_us
    end
    local left_ms = math.ceil(left_us / 1000)
    redis.call('PEXPIRE', limit.keys[1], text_of(left_ms))
    redis.call('PEXPIRE', limit.keys[2], text_of(left_ms))
    redis.call('ZREMRANGEBYSCORE', limit.keys[3], '-inf', text_of(now_us))
    redis.call('ZADD', limit.keys[3], text_of(now_us + left_us), limit.keys[1])
    if redis.call('PTTL', limit.keys[3]) < left_ms then redis.call('PEXPIRE', limit.keys[3], text_of(left_ms)) end
    ledger.is_begun = false
  end

  -- Gives back the first reservations that have ended. Returns true if there were any.
  local function take_back_ended(limit, now_us, most)
    local ended, names, fields = ended_reservations(limit, now_us, most), {}, {}
    if #ended == 0 then return false end
    for index, each in ipairs(ended) do
      names[index], fields[index] = each.name, each.field
      if each.amount > 0 then
        if is_in_ledger(limit, each.slot_us) then
          limit.ledger.reserved = math.max(0, limit.ledger.reserved - each.amount)
        end
        spend(limit, each.slot_us, -each.amount)
      end
    end
    redis.call('HDEL', limit.keys[1], unpack(fields))
    redis.call('ZREM', limit.keys[2], unpack(names))
    return true
  end

  -- Writes the ledger if this run of the script has changed it.
  local function save(limit, now_us, thresholds)
    local ledger = limit.ledger
    if not ledger or not ledger.is_changed then return end
    -- Reservations of an earlier period are no longer part of the reserved amount, but some may be left.
    if ledger.reserved > 0 or ledger.is_begun then take_back_ended(limit, now_us, FEW_ENDED) end
    local view, values, gone = view_at(limit, math.max(now_us, ledger.start_us)), {}, {}
    note_thresholds(limit, view, now_us, thresholds)
    for _, name in ipairs(FIELDS) do
      values[#values + 1] = name
      values[#values + 1] = text_of(ledger[name])
    end
    for kind, amounts in pairs({ day = ledger.days, grant = ledger.grants }) do
      for start_us, amount in pairs(amounts) do
        local name = kind .. ' ' .. text_of(start_us)
        if start_us < view.first_us then gone[#gone + 1] = name
        else
          values[#values + 1] = name
          values[#values + 1] = text_of(amount)
        end
      end
    end
    if #gone > 0 then redis.call('HDEL', limit.keys[1], unpack(gone)) end
    redis.call('HSET', limit.keys[1], unpack(values))
    if ledger.is_begun then keep(limit, view, now_us) end
    save_reservations(limit, now_us)
    ledger.is_changed = false
  end

  -- Returns the view of a time, without the reservations that have ended but are not given back yet.
  local function view_without_ended(limit, now_us)
    local view, ended = view_at(limit, now_us), 0
    for _, each in ipairs(ended_reservations(limit, now_us, MOST_ENDED)) do
      if is_in_ledger(limit, each.slot_us) then ended = ended + each.amount end
    end
    view.reserved = view.is_new and 0 or math.max(0, limit.ledger.reserved - ended)
    view.spent = math.max(0, view.spent - (view.is_new and 0 or ended))
    return view
  end

  local function fits_at(limit, at_us, cost)
    local view = view_at(limit, at_us)
    return view.spent + cost <= view.total and math.max(at_us, view.is_past and view.start_us or at_us)
  end

  return {
    is_rate = true,
    is_budget = true,
    parts = 4,
    read = function(limit, next_number)
      local terms = { most_carried = next_number(), reserve_us = next_number(), day_count = next_number(), days = {}, warn_at = {} }
      for index = 1, 2 * terms.day_count do terms.days[index] = next_number() end
      for index = 1, next_number() do terms.warn_at[index] = next_number() end
      limit.terms = terms
    end,
    earliest = function(limit, at_us, cost, drawer)
      if cost <= 0 then return at_us end
      local fit_us = fits_at(limit, at_us, cost)
      if not fit_us and drawer.now_us > 0 then
        local has_ended = take_back_ended(limit, drawer.now_us, MOST_ENDED)
        local is_reached = reached_at(limit, view_at(limit, drawer.now_us)) > limit.ledger.warned
        if is_reached then limit.ledger.is_changed = true end
        if has_ended or is_reached then save(limit, drawer.now_us) end
        if has_ended then fit_us = fits_at(limit, at_us, cost) end
      end
      return fit_us or later_fit(limit, at_us, cost)
    end,
    commit = function(limit, at_us, cost, drawer)
      if cost == 0 then return end
      local name = drawer.reserves and string.format('%s %.0f', drawer.asker, at_us)
      if name and cost < 0 and not end_reservation(limit, name, at_us, -cost) then return end
      spend(limit, at_us, cost)
      local ledger = limit.ledger
      if name and cost > 0 then
        ledger.holds[name] = (ledger.holds[name] or 0) + cost
        ledger.reserved = ledger.reserved + cost
      end
    end,
    -- Books the difference between the actual cost and the estimate. If the reservation has ended, nothing of the
    -- estimate is booked any more.
    settle = function(limit, slot_us, at_us, difference, reserved, asker)
      local is_ended = reserved > 0 and not end_reservation(limit, string.format('%s %.0f', asker, slot_us), slot_us, reserved)
      if is_ended then difference = difference + reserved end
      if difference ~= 0 then spend(limit, difference > 0 and at_us or slot_us, difference) end
    end,
    save = save,
    -- Returns the remaining amount, when all of it is available again, when the cost fits, and the amount with what is
    -- carried over and granted. Changes nothing.
    status = function(limit, now_us, cost)
      local view = view_without_ended(limit, now_us)
      local remaining = math.max(0, view.total - view.spent)
      local full_us = view.spent > 0 and later_fit(limit, now_us, limit.count) or now_us
      return remaining, full_us, cost <= remaining and now_us or later_fit(limit, now_us, cost), view.total
    end,
    -- Returns the numbers of the budget: start_us end_us spent reserved carried granted total.
    balance = function(limit, now_us)
      local view = view_without_ended(limit, now_us)
      return { view.first_us or view.start_us, view.end_us, view.spent, view.reserved, view.carried, view.granted, view.total }
    end,
    -- Raises the amount until the period ends. A negative amount takes a grant back.
    grant = function(limit, now_us, amount)
      local view = view_at(limit, now_us)
      begin_period(limit, view)
      local ledger = limit.ledger
      if limit.terms.day_count > 0 then
        local start_us = period_at(limit, now_us)
        ledger.grants[start_us] = math.max(-view.granted, math.min(MOST_GRANTED, (ledger.grants[start_us] or 0) + amount))
      else
        ledger.granted = math.max(0, math.min(MOST_GRANTED, ledger.granted + amount))
      end
      ledger.is_changed = true
    end,
    -- Replaces what the current period holds. For rolling days, all of it counts as of today.
    restore = function(limit, now_us, spent, carried, granted)
      local view = view_at(limit, now_us)
      begin_period(limit, view)
      local ledger = limit.ledger
      if limit.terms.day_count > 0 then
        local start_us = period_at(limit, now_us)
        for day_us in pairs(ledger.days) do ledger.days[day_us] = 0 end
        for day_us in pairs(ledger.grants) do ledger.grants[day_us] = 0 end
        ledger.days[start_us], ledger.grants[start_us] = spent, granted
      else
        ledger.spent, ledger.carried, ledger.granted = spent, carried, granted
      end
      ledger.is_changed, ledger.is_begun = true, true
    end,
  }
end

-- a: the sum of all bookings, including expired ones;
-- keys[1] zset: for each booking, "slot_us total" -> total, which is `a` right after that booking.
MAKERS[3] = function()
  -- The most entries to rewrite when a call returns units. If there are more, the call returns nothing.
  local MOST_REWRITTEN = 1000
  -- One draw may book many calls. The expiry is set again only for calls that are this much later.
  local KEEP_FOR_US = 10000000

  local function slot_of(member)
    return tonumber(string.match(member, '^%d+'))
  end

  -- Returns the rank of the first entry at or after a time, by binary search, because entries are sorted by time.
  local function rank_of(key, at_us, count)
    local low, high = 0, count
    while low < high do
      local middle = math.floor((low + high) / 2)
      if slot_of(redis.call('ZRANGE', key, middle, middle)[1]) < at_us then low = middle + 1 else high = middle end
    end
    return low
  end

  -- Returns units to the bookings of exactly this time, and lowers the totals of later entries.
  local function take_back(limit, at_us, amount)
    local key = limit.keys[1]
    local count = redis.call('ZCARD', key)
    local first = rank_of(key, at_us, count)
    if first == count or count - first > MOST_REWRITTEN then return end
    local later = redis.call('ZRANGE', key, first, -1, 'WITHSCORES')
    if slot_of(later[1]) ~= at_us then return end
    local before = first > 0 and redis.call('ZRANGE', key, first - 1, first - 1, 'WITHSCORES')[2] or 0
    local floor, taken = tonumber(before), 0
    for index = 1, #later, 2 do
      if slot_of(later[index]) == at_us then taken = math.min(amount, tonumber(later[index + 1]) - floor) end
    end
    for index = 1, #later, 2 do
      redis.call('ZADD', key, math.max(floor, tonumber(later[index + 1]) - taken), later[index])
    end
    limit.a = limit.a - taken
  end

  return {
    is_rate = true,
    parts = 1,
    earliest = function(limit, at_us, cost)
      local spare = limit.a + cost - limit.capacity
      if spare <= 0 then return at_us end
      if limit.sought ~= spare then
        local last = redis.call('ZRANGEBYSCORE', limit.keys[1], spare, '+inf', 'LIMIT', 0, 1)[1]
        limit.sought, limit.leaves_us = spare, last and slot_of(last) + limit.period_us or 0
      end
      return math.max(at_us, limit.leaves_us)
    end,
    commit = function(limit, at_us, cost, drawer)
      limit.sought = nil
      if cost < 0 then return take_back(limit, at_us, -cost) end
      if cost == 0 then return end
      local key, before = limit.keys[1], limit.a
      -- Deletes the entries of an earlier policy, because they do not count.
      if before == 0 then
        redis.call('DEL', key)
        limit.kept_until_us = nil
      end
      limit.a = before + cost
      redis.call('ZADD', key, limit.a, string.format('%.0f %.0f', at_us, limit.a))
      -- Keeps twice the entries that count, because older entries count again when later ones are taken back. Only
      -- some calls clean up.
      local each = math.max(1, math.floor(limit.capacity / 8))
      if math.floor(before / each) ~= math.floor(limit.a / each) then
        redis.call('ZREMRANGEBYSCORE', key, '-inf', '(' .. string.format('%.0f', limit.a + 1 - 2 * limit.capacity))
      end
      if at_us <= (limit.kept_until_us or -1) then return end
      limit.kept_until_us = at_us + KEEP_FOR_US
      redis.call('PEXPIRE', key, math.ceil((limit.kept_until_us - drawer.now_us + limit.period_us) / 1000) + 1000)
    end,
  }
end

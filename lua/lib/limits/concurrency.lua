-- A concurrency limit. See lib/limits/leases for its Redis keys.
-- @include lib/limits/leases
-- Lua can unpack only a few thousand values at once. The number is even, because each lease has two values.
local MOST_WRITTEN = 1000

-- Writes all leases that calls took in this run of the script.
local function flush_leases(limits, now_us)
  for index = 1, #limits do
    local limit = limits[index]
    if limit.taken then
      redis.call('ZREMRANGEBYSCORE', limit.keys[1], '-inf', string.format('%.0f', now_us))
      for first = 1, #limit.taken, MOST_WRITTEN do
        redis.call('ZADD', limit.keys[1], unpack(limit.taken, first, math.min(first + MOST_WRITTEN - 1, #limit.taken)))
      end
      redis.call('PEXPIRE', limit.keys[1], math.ceil((limit.taken_until_us - now_us) / 1000) + 1000)
    end
  end
end

-- Returns how many leases stay free after each waiting replica has got one; 0 if there is no concurrency limit.
local function spare_leases(limits, now_us)
  local spare = nil
  for index = 1, #limits do
    local limit = limits[index]
    if limit.code == 6 or limit.code == 8 then
      local most = limit.code == 6 and limit.count or RULES[8].bound_of(limit)
      local active = limit.active or count_leases(limit, now_us)
      local free = most - active - #(limit.waiters or waiters_of(limit, now_us))
      spare = math.min(spare or free, free)
    end
  end
  return math.max(0, spare or 0)
end

MAKERS[6] = function()
  -- Returns the number of waiting replicas before this one. A replica without a position counts as last. Where keys take
  -- turns, returns how many leases the calls before this one need.
  local function count_before(limit, drawer)
    if limit.before then return limit.before end
    limit.waiters = limit.waiters or waiters_of(limit, drawer.now_us)
    local before, own = 0, nil
    for _, waiter in ipairs(limit.waiters) do
      own = own or waiter_name(drawer.order, drawer.asker)
      if string.sub(waiter, 18) ~= drawer.asker and (drawer.order == 0 or waiter < own) then before = before + 1 end
    end
    return before
  end

  return {
    is_rate = false,
    parts = 2,
    -- Writes nothing to Redis. Counts that change within a run of the script are stored in the limit.
    earliest = function(limit, at_us, cost, drawer)
      -- A call with a cost of 0 already has its lease, so it must not wait behind the waiting replicas.
      if cost == 0 then return at_us end
      limit.active = limit.active or count_leases(limit, drawer.now_us)
      return limit.active + count_before(limit, drawer) + cost <= (limit.bound or limit.count) and at_us or math.huge
    end,
    -- Only collects the leases. flush_leases writes all leases of a run together.
    commit = function(limit, at_us, cost, drawer)
      if cost <= 0 then return end
      limit.active = limit.active and limit.active + 1
      local taken = limit.taken or {}
      limit.taken = taken
      local end_us = at_us + limit.period_us
      taken[#taken + 1] = string.format('%.0f', end_us)
      taken[#taken + 1] = lease_name(drawer.asker, drawer.lease)
      limit.taken_until_us = math.max(limit.taken_until_us or 0, end_us)
    end,
    keep_position = function(limit, drawer)
      limit.waiters = nil
      redis.call('ZREMRANGEBYSCORE', limit.keys[2], '-inf', string.format('%.0f', drawer.now_us - WAITER_GONE_US))
      redis.call('ZADD', limit.keys[2], drawer.now_us, waiter_name(drawer.order, drawer.asker))
      redis.call('PEXPIRE', limit.keys[2], math.ceil(WAITER_GONE_US / 1000))
    end,
    leave_position = function(limit, drawer)
      limit.waiters = nil
      if redis.call('ZREM', limit.keys[2], waiter_name(drawer.order, drawer.asker)) > 0 then return end
      -- Where keys take turns, another replica may have moved this one.
      for _, waiter in ipairs(waiters_of(limit, drawer.now_us)) do
        if string.sub(waiter, 18) == drawer.asker then redis.call('ZREM', limit.keys[2], waiter) end
      end
    end,
    -- Puts waiting replicas in this order. Other replicas do not wait for a lease, or follow.
    set_positions = function(limit, askers, own, now_us)
      local known, names, scores = waiters_of(limit, now_us), {}, { [own] = string.format('%.0f', now_us) }
      local known_scores = #known > 0 and redis.call('ZMSCORE', limit.keys[2], unpack(known))
      for at, waiter in ipairs(known) do
        local asker = string.sub(waiter, 18)
        names[asker], scores[asker] = waiter, scores[asker] or known_scores[at]
      end
      for index, asker in ipairs(askers) do
        local name = waiter_name(index, asker)
        if scores[asker] and names[asker] ~= name and names[asker] then redis.call('ZREM', limit.keys[2], names[asker]) end
        if scores[asker] and (names[asker] ~= name or asker == own) then redis.call('ZADD', limit.keys[2], scores[asker], name) end
      end
      redis.call('PEXPIRE', limit.keys[2], math.ceil(WAITER_GONE_US / 1000))
      limit.waiters = nil
    end,
  }
end

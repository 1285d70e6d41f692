-- Twin of src/core/limits/concurrency.ts. keys[1] zset: "asker lease" -> us at which the lease ends;
-- keys[2] zset: "order asker" -> us at which that asker asked last.
-- A waiting asker asks every half second; one that was not seen for this long is gone.
local WAITER_GONE_US = 1500000

local function lease_name(asker, lease)
  return string.format('%s %.0f', asker, lease)
end

local function waiter_name(order, asker)
  return string.format('%016.0f %s', order, asker)
end

-- The names of the askers that wait, in their order. It changes nothing.
local function waiters_of(limit, now_us)
  local since = string.format('(%.0f', now_us - WAITER_GONE_US)
  local waiters = redis.call('ZRANGEBYSCORE', limit.keys[2], since, '+inf')
  table.sort(waiters)
  return waiters
end

-- How many leases calls still hold. It changes nothing.
local function count_leases(limit, now_us)
  return redis.call('ZCOUNT', limit.keys[1], string.format('(%.0f', now_us), '+inf')
end

-- How many other askers come before this one; all of them if it comes last.
local function count_before(limit, drawer)
  local before, own = 0, waiter_name(drawer.order, drawer.asker)
  for _, waiter in ipairs(waiters_of(limit, drawer.now_us)) do
    if string.sub(waiter, 18) ~= drawer.asker and (drawer.order == 0 or waiter < own) then before = before + 1 end
  end
  return before
end

RULES[6] = {
  parts = 2,
  -- Both counts are read once a draw, while it asks for one place; the leases that the draw adds are counted here.
  earliest = function(limit, at_us, cost, drawer)
    -- Its lease was drawn before: it must not wait behind those that wait for one.
    if cost == 0 then return at_us end
    limit.active = limit.active or count_leases(limit, drawer.now_us)
    if limit.counted_for ~= drawer.order then
      limit.before, limit.counted_for = count_before(limit, drawer), drawer.order
    end
    return limit.active + limit.before + cost <= limit.count and at_us or math.huge
  end,
  commit = function(limit, at_us, cost, drawer)
    if cost <= 0 then return end
    limit.active = limit.active and limit.active + 1
    local end_us = at_us + limit.period_us
    redis.call('ZREMRANGEBYSCORE', limit.keys[1], '-inf', string.format('%.0f', drawer.now_us))
    redis.call('ZADD', limit.keys[1], end_us, lease_name(drawer.asker, drawer.lease))
    redis.call('PEXPIRE', limit.keys[1], math.ceil((end_us - drawer.now_us) / 1000) + 1000)
  end,
  keep_place = function(limit, drawer)
    limit.counted_for = nil
    redis.call('ZREMRANGEBYSCORE', limit.keys[2], '-inf', string.format('%.0f', drawer.now_us - WAITER_GONE_US))
    redis.call('ZADD', limit.keys[2], drawer.now_us, waiter_name(drawer.order, drawer.asker))
    redis.call('PEXPIRE', limit.keys[2], math.ceil(WAITER_GONE_US / 1000))
  end,
  leave_place = function(limit, drawer)
    limit.counted_for = nil
    redis.call('ZREM', limit.keys[2], waiter_name(drawer.order, drawer.asker))
  end,
}

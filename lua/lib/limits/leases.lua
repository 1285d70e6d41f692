-- What a limit on calls at once keeps. keys[1] zset: "asker lease" -> us at which the lease ends;
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

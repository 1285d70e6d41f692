-- Stores the state of a concurrency limit.
-- keys[1] zset: "replica lease" -> us at which the lease ends
-- keys[2] zset: "order replica" -> us of the replica's last draw
-- A waiting replica draws every half second. A replica that has not drawn for WAITER_GONE_US no longer counts as
-- waiting.
local WAITER_GONE_US = 1500000

local function lease_name(replica, lease)
  return string.format('%s %.0f', replica, lease)
end

local function waiter_name(order, replica)
  return string.format('%016.0f %s', order, replica)
end

-- Returns the names of the waiting replicas, in their order. Changes nothing.
local function waiters_of(limit, now_us)
  local since = string.format('(%.0f', now_us - WAITER_GONE_US)
  local waiters = redis.call('ZRANGEBYSCORE', limit.keys[2], since, '+inf')
  table.sort(waiters)
  return waiters
end

-- Returns the number of leases that calls still hold. Changes nothing.
local function count_leases(limit, now_us)
  return redis.call('ZCOUNT', limit.keys[1], string.format('(%.0f', now_us), '+inf')
end

-- @include lib/lanes/names
-- The lanes of a queue: jobs with a key wait for their turn in them, one for each key, parked in BullMQ's delayed set. A
-- lane whose key has no room is aside (`blocked`) until then. Who decides the next job: take() in lib/lanes/take.lua.

local DAY_MS = 86400000
-- When a pause without an end ends, in ms since 1970.
local FOREVER_MS = 8.64e15
-- A lane whose key had no room is tried with one job at a time, a probe, until this many got their slots at once.
local PROBES = 2
-- A probe of which nothing is heard ends after this time.
local PROBE_MS = 1000
-- The news that a key has room may get lost, as when no worker was there. So every RECHECK_EVERY_MS, RECHECKED_LANES of the lanes
-- that are aside for longer are tried with a job all the same, in turns.
local RECHECK_EVERY_MS, RECHECKED_LANES = 10000, 100

local function open_lanes(keys, prefix, now_ms)
  local lanes = lane_names(prefix)
  local v, free, parked, looked_at_ms, looked, orders, paused_keys, ordered = unpack(
    redis.call('HMGET', lanes.state, 'v', 'free', 'parked', 'lookedAt', 'looked', 'orders', 'pausedKeys', 'ordered'))
  lanes.jobs, lanes.now_ms, lanes.v, lanes.parked = prefix, now_ms, tonumber(v) or 0, tonumber(parked) or 0
  -- Where the turn of the jobs without a key has come to.
  lanes.free = tonumber(free) or 0
  lanes.looked_at_ms, lanes.looked = tonumber(looked_at_ms) or 0, tonumber(looked) or 0
  lanes.wait, lanes.delayed, lanes.events, lanes.meta, lanes.marker = unpack(keys)
  -- How often workers were told something about the jobs that they hold.
  lanes.orders = orders or ''
  -- How many keys are paused; 0 in most queues, which then ask no more.
  lanes.paused_keys = tonumber(paused_keys) or 0
  -- Whether there has been an ordered lane.
  lanes.is_ordered = ordered ~= false
  lanes.known = {}
  return lanes
end

-- Until when a key is paused, in ms since 1970; nil if it is not.
local function paused_until(lanes, key)
  local until_ms = lanes.paused_keys > 0 and tonumber(redis.call('ZSCORE', lanes.paused, key))
  return until_ms and until_ms > lanes.now_ms and until_ms or nil
end

local OPTIONAL = { 'slow', 'weights', 'shares', 'deadlines' }

-- Whether there is any 'slow', 'weights', 'shares' or 'deadlines': most queues have none, and most calls do not ask. So
-- the first question is about all of them.
local function has(lanes, name)
  local known = lanes.known
  if known.any == nil then
    known.any = redis.call('EXISTS', lanes.slow, lanes.weights, lanes.shares, lanes.deadlines) > 0
    if not known.any then
      for _, each in ipairs(OPTIONAL) do known[each] = known[each] or false end
    end
  end
  if known[name] == nil then known[name] = redis.call('EXISTS', lanes[name]) == 1 end
  return known[name]
end

local function close_lanes(lanes)
  -- With no job left, no lane has had more than another: the time of turns starts anew.
  if lanes.parked <= 0 then lanes.v, lanes.free, lanes.parked = 0, 0, 0 end
  redis.call('HSET', lanes.state, 'v', string.format('%.17g', lanes.v), 'free', string.format('%.17g', lanes.free),
    'parked', string.format('%.0f', lanes.parked))
  if lanes.parked == 0 then redis.call('UNLINK', lanes.finish) end
end

-- An idle lane saves up no credit, and keeps the debt that it had when it ran empty. That of a paused key stays aside,
-- whoever wakes it.
local function make_ready(lanes, key)
  local paused_ms = paused_until(lanes, key)
  if paused_ms then
    redis.call('ZADD', lanes.blocked, string.format('%.0f', paused_ms), key)
    return
  end
  local finish = tonumber(redis.call('ZSCORE', lanes.finish, key)) or 0
  redis.call('ZADD', lanes.ready, string.format('%.17g', math.max(lanes.v, finish)), key)
end

-- Puts a lane back in line, unless it is empty, in line already, or waits for its head (lib/lanes/order).
local function wake_lane(lanes, key)
  redis.call('ZREM', lanes.blocked, key)
  if lanes.is_ordered and redis.call('ZSCORE', lanes.heads, key) then return end
  if redis.call('EXISTS', lanes.lane .. key) == 1 and not redis.call('ZSCORE', lanes.ready, key) then
    make_ready(lanes, key)
  end
end

local function wake_due_lanes(lanes)
  local due = redis.call('ZRANGEBYSCORE', lanes.blocked, '-inf', lanes.now_ms, 'LIMIT', 0, 200)
  for _, key in ipairs(due) do wake_lane(lanes, key) end
end

local function wake_some_lanes(lanes)
  local since_ms = lanes.now_ms - lanes.looked_at_ms
  -- Below 0 the clock has stepped back.
  if since_ms >= 0 and since_ms < RECHECK_EVERY_MS then return end
  local from_ms = '(' .. string.format('%.0f', lanes.now_ms + RECHECK_EVERY_MS)
  local aside = redis.call('ZCOUNT', lanes.blocked, from_ms, '+inf')
  local first = aside > RECHECKED_LANES and lanes.looked % aside or 0
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', lanes.blocked, from_ms, '+inf', 'LIMIT', first, RECHECKED_LANES)) do
    wake_lane(lanes, key)
  end
  redis.call('HSET', lanes.state, 'lookedAt', string.format('%.0f', lanes.now_ms), 'looked', first + RECHECKED_LANES)
end

-- Wakes a worker that waits for jobs, if there may be some.
local function announce(lanes)
  if redis.call('HEXISTS', lanes.meta, 'paused') == 0 then redis.call('ZADD', lanes.marker, 0, '0') end
end

local function weight_of(lanes, key)
  return has(lanes, 'weights') and tonumber(redis.call('HGET', lanes.weights, key)) or 1
end

local function share_of(lanes, id)
  return has(lanes, 'shares') and tonumber(redis.call('HGET', lanes.shares, id)) or 1
end

-- Removes what is kept of a job while it is parked.
local function forget_job(lanes, id)
  lanes.parked, lanes.is_changed = lanes.parked - 1, true
  if has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
  if has(lanes, 'deadlines') then redis.call('ZREM', lanes.deadlines, id) end
end

-- Of an ordered lane, what a dead letter does to it and its head: the job that it gave last, '' if none. Else nil.
local function order_of(lanes, key)
  local order = lanes.is_ordered and redis.call('HGET', lanes.ordered, key)
  if order then return string.match(order, '^(%d) (.*)$') end
end

local function forget_lane(lanes, key)
  redis.call('ZREM', lanes.ready, key)
  redis.call('ZREM', lanes.blocked, key)
  if has(lanes, 'weights') then redis.call('HDEL', lanes.weights, key) end
  if has(lanes, 'slow') then redis.call('HDEL', lanes.slow, key) end
  local stuck, head = order_of(lanes, key)
  if head == '' then redis.call('HDEL', lanes.ordered, key)
  elseif stuck then redis.call('ZADD', lanes.heads, 'NX', lanes.now_ms, key) end
end

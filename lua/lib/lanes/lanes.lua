-- @include lib/lanes/line
-- The lanes of a queue: jobs with a key wait for their turn in them, one for each key, parked in BullMQ's delayed set. A
-- lane whose key has no room is aside (`blocked`) until then; if the head of its path has none, the head is, and all below
-- it wait. Who decides the next job: take() in lib/lanes/take.lua.

local DAY_MS = 86400000
-- When a pause without an end ends, in ms since 1970.
local FOREVER_MS = 8.64e15
-- What had no room, a lane or a head, is tried with one job at a time, a probe, until this many got their slots at once.
local PROBES = 2
-- A probe of which nothing is heard ends after this time.
local PROBE_MS = 1000
-- The news that a key has room may get lost, as when no worker was there. So every RECHECK_EVERY_MS, RECHECKED_LANES of the lanes
-- that are aside for longer are tried with a job all the same, in turns.
local RECHECK_EVERY_MS, RECHECKED_LANES = 10000, 100

local function open_lanes(keys, prefix, now_ms)
  local lanes = lane_names(prefix)
  local v, free, parked, looked_at_ms, looked, orders, paused_keys, ordered, paths, mended, mended_at_ms = unpack(
    redis.call('HMGET', lanes.state, 'v', 'free', 'parked', 'lookedAt', 'looked', 'orders', 'pausedKeys', 'ordered',
      'paths', 'mended', 'mendedAt'))
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
  -- Whether jobs of paths are parked. In most queues there are none, and nothing more is asked.
  lanes.has_paths = paths ~= false
  lanes.mended, lanes.mended_at_ms = mended or '0', tonumber(mended_at_ms) or 0
  lanes.known = {}
  return lanes
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
  if lanes.parked > 0 then return end
  redis.call('UNLINK', lanes.finish)
  if lanes.has_paths and redis.call('EXISTS', lanes.ready) == 0 then
    redis.call('UNLINK', lanes.below)
    redis.call('HDEL', lanes.state, 'paths', 'mended', 'mendedAt')
  end
end

-- Ends that a lane or a head is aside. A lane is put in line, unless it is empty, in line already, or waits for its head
-- job (lib/lanes/order).
local function wake_lane(lanes, key)
  redis.call('ZREM', lanes.blocked, key)
  if lanes.has_paths and redis.call('EXISTS', line_of(lanes, key)) == 1 then raise(lanes, key) end
  if lanes.is_ordered and redis.call('ZSCORE', lanes.heads, key) then return end
  if redis.call('EXISTS', lanes.lane .. key) == 1
    and not redis.call('ZSCORE', line_of(lanes, stands_with(lanes, key)), key) then
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
  if lanes.has_paths then mend_lines(lanes) end
end

-- Wakes a worker that waits for jobs, if there may be some.
local function announce(lanes)
  if redis.call('HEXISTS', lanes.meta, 'paused') == 0 then redis.call('ZADD', lanes.marker, 0, '0') end
end

-- How much of a line's turns a lane or a head gets. Inside its line, the lane of a head's own jobs has weight 1: its other
-- weight is the head's.
local function weight_of(lanes, text, head)
  return text ~= head and has(lanes, 'weights') and tonumber(redis.call('HGET', lanes.weights, text)) or 1
end

local function share_of(lanes, id)
  return has(lanes, 'shares') and tonumber(redis.call('HGET', lanes.shares, id)) or 1
end

-- Removes what is kept of a lane, or of a head, while it has jobs.
local function forget_key(lanes, text)
  redis.call('ZREM', lanes.blocked, text)
  if has(lanes, 'weights') then redis.call('HDEL', lanes.weights, text) end
  if has(lanes, 'slow') then redis.call('HDEL', lanes.slow, text) end
end

-- Counts a job that is parked, or no longer, for each head of its path.
local function count_below(lanes, key, by)
  local head = head_of(key)
  while head ~= '' do
    if redis.call('HINCRBY', lanes.below, head, by) <= 0 then
      redis.call('HDEL', lanes.below, head)
      if redis.call('EXISTS', lanes.lane .. head) == 0 then forget_key(lanes, head) end
    end
    head = head_of(head)
  end
end

-- Removes what is kept of a job while it is parked.
local function forget_job(lanes, id, key)
  lanes.parked, lanes.is_changed = lanes.parked - 1, true
  if has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
  if has(lanes, 'deadlines') then redis.call('ZREM', lanes.deadlines, id) end
  count_below(lanes, key, -1)
end

-- Of an ordered lane, what a dead letter does to it and its head: the job that it gave last, '' if none. Else nil.
local function order_of(lanes, key)
  local order = lanes.is_ordered and redis.call('HGET', lanes.ordered, key)
  if order then return string.match(order, '^(%d) (.*)$') end
end

-- Removes what is kept of a lane that is empty.
local function forget_lane(lanes, key)
  leave_line(lanes, stands_with(lanes, key), key)
  if not has_below(lanes, key) then forget_key(lanes, key) end
  local stuck, head = order_of(lanes, key)
  if head == '' then redis.call('HDEL', lanes.ordered, key)
  elseif stuck then redis.call('ZADD', lanes.heads, 'NX', lanes.now_ms, key) end
end

-- @include lib/lanes/line
-- The lanes of a queue. Each key has one lane, in which its pending jobs wait for their turn. They are parked in
-- BullMQ's delayed set. The lane of a key without room is blocked (`blocked`) until there is room. If a parent key has
-- no room, the parent is blocked, and all lanes below it wait. take() in lib/lanes/take.lua decides the next job.

local DAY_MS = 86400000
-- The end of a pause without an end, in ms since 1970.
local FOREVER_MS = 8.64e15
-- A lane or a parent that was blocked is tested with one job at a time, a probe, until this many got their slots at
-- once.
local PROBES = 2
-- A probe without a result ends after this time.
local PROBE_MS = 1000
-- The message that a key has room may get lost, for instance without a worker. So every RECHECK_EVERY_MS,
-- RECHECKED_LANES of the lanes that are blocked for longer are tested with a job, in turns.
local RECHECK_EVERY_MS, RECHECKED_LANES = 10000, 100

local function open_lanes(keys, prefix, now_ms)
  local lanes = lane_names(prefix)
  local v, free, parked, looked_at_ms, looked, orders, paused_keys, ordered, paths, mended, mended_at_ms = unpack(
    redis.call('HMGET', lanes.state, 'v', 'free', 'parked', 'lookedAt', 'looked', 'orders', 'pausedKeys', 'ordered',
      'paths', 'mended', 'mendedAt'))
  lanes.jobs, lanes.now_ms, lanes.v, lanes.parked = prefix, now_ms, tonumber(v) or 0, tonumber(parked) or 0
  -- The position of the jobs without a key among the turns of the lanes.
  lanes.free = tonumber(free) or 0
  lanes.looked_at_ms, lanes.looked = tonumber(looked_at_ms) or 0, tonumber(looked) or 0
  lanes.wait, lanes.delayed, lanes.events, lanes.meta, lanes.marker = unpack(keys)
  -- Counts the messages to workers about the jobs that they hold.
  lanes.orders = orders or ''
  -- How many keys are paused. It is 0 in most queues, which then send no further commands.
  lanes.paused_keys = tonumber(paused_keys) or 0
  -- True if there has been an ordered lane.
  lanes.is_ordered = ordered ~= false
  -- True if jobs of paths are parked. Most queues have none, and then send no further commands.
  lanes.has_paths = paths ~= false
  lanes.mended, lanes.mended_at_ms = mended or '0', tonumber(mended_at_ms) or 0
  lanes.known = {}
  return lanes
end

local OPTIONAL = { 'slow', 'weights', 'shares', 'deadlines' }

-- True if there is any 'slow', 'weights', 'shares' or 'deadlines'. Most queues have none of them, and most calls do not
-- ask. So the first question covers all four.
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
  -- Without jobs, no lane is ahead of another, so the time of turns starts again.
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

-- Ends the blocking of a lane or a parent. The lane is put in line, unless it is empty, in line already, or waits for
-- its head job (lib/lanes/order).
local function wake_lane(lanes, key)
  redis.call('ZREM', lanes.blocked, key)
  if lanes.has_paths and redis.call('EXISTS', line_of(lanes, key)) == 1 then raise_parents(lanes, key) end
  if lanes.is_ordered and redis.call('ZSCORE', lanes.heads, key) then return end
  if redis.call('EXISTS', lanes.lane .. key) == 1
    and not redis.call('ZSCORE', line_of(lanes, parent_line_of(lanes, key)), key) then
    make_ready(lanes, key)
  end
end

local function wake_due_lanes(lanes)
  local due = redis.call('ZRANGEBYSCORE', lanes.blocked, '-inf', lanes.now_ms, 'LIMIT', 0, 200)
  for _, key in ipairs(due) do wake_lane(lanes, key) end
end

local function wake_some_lanes(lanes)
  local since_ms = lanes.now_ms - lanes.looked_at_ms
  -- Below 0, the clock has stepped back.
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

-- The share of turns that a lane or a parent gets in its line. Among the lanes below a parent, the lane of the parent's
-- own jobs has weight 1, because its other weight is that of the parent.
local function weight_of(lanes, text, parent)
  return text ~= parent and has(lanes, 'weights') and tonumber(redis.call('HGET', lanes.weights, text)) or 1
end

local function share_of(lanes, id)
  return has(lanes, 'shares') and tonumber(redis.call('HGET', lanes.shares, id)) or 1
end

-- Removes what is stored for a lane, or for a parent, while it has jobs.
local function forget_key(lanes, text)
  redis.call('ZREM', lanes.blocked, text)
  if has(lanes, 'weights') then redis.call('HDEL', lanes.weights, text) end
  if has(lanes, 'slow') then redis.call('HDEL', lanes.slow, text) end
end

-- Counts a job that was parked, or is no longer parked, for each parent of its key.
local function count_below(lanes, key, by)
  local parent = parent_of(key)
  while parent ~= '' do
    if redis.call('HINCRBY', lanes.below, parent, by) <= 0 then
      redis.call('HDEL', lanes.below, parent)
      if redis.call('EXISTS', lanes.lane .. parent) == 0 then forget_key(lanes, parent) end
    end
    parent = parent_of(parent)
  end
end

-- Removes what is stored for a job while it is parked.
local function forget_job(lanes, id, key)
  lanes.parked, lanes.is_changed = lanes.parked - 1, true
  if has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
  if has(lanes, 'deadlines') then redis.call('ZREM', lanes.deadlines, id) end
  count_below(lanes, key, -1)
end

-- For an ordered lane: what a dead letter does to it, and its head job, the one it gave last ('' if none). Otherwise
-- nil.
local function order_of(lanes, key)
  local order = lanes.is_ordered and redis.call('HGET', lanes.ordered, key)
  if order then return string.match(order, '^(%d) (.*)$') end
end

-- Removes what is stored for an empty lane.
local function forget_lane(lanes, key)
  leave_line(lanes, parent_line_of(lanes, key), key)
  if not has_below(lanes, key) then forget_key(lanes, key) end
  local stuck, head = order_of(lanes, key)
  if head == '' then redis.call('HDEL', lanes.ordered, key)
  elseif stuck then redis.call('ZADD', lanes.heads, 'NX', lanes.now_ms, key) end
end

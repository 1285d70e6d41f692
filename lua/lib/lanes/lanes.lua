-- @include lib/lanes/line
-- Each key of a queue has one lane, in which its pending jobs wait for their turn. They are parked in BullMQ's
-- delayed set. The lane of a key without room is blocked (`blocked`) until there is room. If a parent key has no
-- room, the parent is blocked, and all lanes below it wait. take() in lib/lanes/take.lua chooses the next job.

local DAY_MS = 86400000
-- Stored as the end of a pause without an end, in ms since 1970.
local FOREVER_MS = 8.64e15
-- After a lane or a parent was blocked, it runs one job at a time, called a probe, until this many probes got their
-- slots immediately.
local PROBES = 2
-- A probe without a result ends after this many ms.
local PROBE_MS = 1000
-- The message that a key has room may be lost, for instance if no worker runs. So every RECHECK_EVERY_MS, up to
-- RECHECKED_LANES of the lanes that are blocked for longer are tested with one job each, in turns.
local RECHECK_EVERY_MS, RECHECKED_LANES = 10000, 100

local function open_lanes(keys, prefix, now_ms)
  local lanes = lane_names(prefix)
  local v, free, parked, looked_at_ms, looked, orders, paused_keys, ordered, paths, mended, mended_at_ms, flows = unpack(
    redis.call('HMGET', lanes.state, 'v', 'free', 'parked', 'lookedAt', 'looked', 'orders', 'pausedKeys', 'ordered',
      'paths', 'mended', 'mendedAt', 'flows'))
  lanes.jobs, lanes.now_ms, lanes.v, lanes.parked = prefix, now_ms, tonumber(v) or 0, tonumber(parked) or 0
  -- The virtual time of the jobs without a key, which take turns with the lanes.
  lanes.free = tonumber(free) or 0
  lanes.looked_at_ms, lanes.looked = tonumber(looked_at_ms) or 0, tonumber(looked) or 0
  lanes.wait, lanes.delayed, lanes.events, lanes.meta, lanes.marker = unpack(keys)
  -- A version that counts the orders to workers about jobs that they hold, such as pauses (jobs-orders).
  lanes.orders = orders or ''
  -- The number of paused keys. In most queues it is 0, so no further commands are needed.
  lanes.paused_keys = tonumber(paused_keys) or 0
  -- True if the queue has ever had an ordered lane.
  lanes.is_ordered = ordered ~= false
  -- True if jobs with paths as keys are parked. In most queues it is false, so no further commands are needed.
  lanes.has_paths = paths ~= false
  -- True if a job of the queue has ever had parents or children.
  lanes.has_flows = flows and true or false
  lanes.mended, lanes.mended_at_ms = mended or '0', tonumber(mended_at_ms) or 0
  lanes.known = {}
  return lanes
end

local OPTIONAL = { 'slow', 'weights', 'shares', 'deadlines' }

-- True if `name`, which is 'slow', 'weights', 'shares' or 'deadlines', exists in Redis. Most queues have none of the
-- four, so the first command checks all of them together.
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
  -- Resets the virtual time if no jobs are parked, because no lane is ahead of another then.
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

-- Unblocks a lane or a parent. The lane joins its line, unless it is empty, is in the line already, or waits for its
-- head job (lib/lanes/order).
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
  -- The difference is below 0 if the clock has stepped back.
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

-- Wakes a worker that waits for jobs, because there may be a job now.
local function announce(lanes)
  if redis.call('HEXISTS', lanes.meta, 'paused') == 0 then redis.call('ZADD', lanes.marker, 0, '0') end
end

-- Returns the weight of a lane or a parent in its line, which sets its share of turns. Among the lanes below a
-- parent, the lane of the parent's own jobs has weight 1, because the stored weight belongs to the parent.
local function weight_of(lanes, text, parent)
  return text ~= parent and has(lanes, 'weights') and tonumber(redis.call('HGET', lanes.weights, text)) or 1
end

local function share_of(lanes, id)
  return has(lanes, 'shares') and tonumber(redis.call('HGET', lanes.shares, id)) or 1
end

-- Removes the data that a lane or a parent has only while it has jobs.
local function forget_key(lanes, text)
  redis.call('ZREM', lanes.blocked, text)
  if has(lanes, 'weights') then redis.call('HDEL', lanes.weights, text) end
  if has(lanes, 'slow') then redis.call('HDEL', lanes.slow, text) end
end

-- Adds `by` to the number of parked jobs of each parent of a key.
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

-- Removes the data that a job has only while it is parked.
local function forget_job(lanes, id, key)
  lanes.parked, lanes.is_changed = lanes.parked - 1, true
  if has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
  if has(lanes, 'deadlines') then redis.call('ZREM', lanes.deadlines, id) end
  count_below(lanes, key, -1)
end

-- Returns, for an ordered lane, what a dead letter does to the lane, and its head job, which is the job it started
-- last ('' if none). Returns nil for other lanes.
local function order_of(lanes, key)
  local order = lanes.is_ordered and redis.call('HGET', lanes.ordered, key)
  if order then return string.match(order, '^(%d) (.*)$') end
end

-- Removes the data of an empty lane.
local function forget_lane(lanes, key)
  leave_line(lanes, parent_line_of(lanes, key), key)
  if not has_below(lanes, key) then forget_key(lanes, key) end
  local stuck, head = order_of(lanes, key)
  if head == '' then redis.call('HDEL', lanes.ordered, key)
  elseif stuck then redis.call('ZADD', lanes.heads, 'NX', lanes.now_ms, key) end
end

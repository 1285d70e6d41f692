-- @include lib/enqueue/find-duplicate
-- @include lib/enqueue/backlog
-- @include lib/enqueue/debounce
-- @include lib/enqueue/cancel-running
-- @include lib/enqueue/keep
-- @include lib/flows/hold
-- @include lib/flows/children
-- Stores a new job in the same way as BullMQ's scripts (addDelayedJob-6.lua, addPrioritizedJob-9.lua; checked with
-- bullmq 6.7.0). A job with a key is parked immediately.

-- How long a job that waits for its parents counts in the backlog of its key.
local COUNTED_MS = 30 * DAY_MS

-- Puts a stored job into its lane, or among the delayed or waiting jobs.
local function place(lanes, id, job, followed)
  if job.flow then
    local must_wait, is_cancelled = store_flow(lanes, id, job.flow)
    if is_cancelled then
      publish_cancelled(lanes.events, lanes.jobs .. 'cancelled:' .. id, id)
      erase(lanes, id, job.dedupe and job.dedupe.id, 'delayed')
      return
    end
    if must_wait then
      hold(lanes, id)
      local lane = lanes.bounds_keys and key_of(job.name)
      if lane then note_later(lanes, lane, id, lanes.now_ms + COUNTED_MS) end
      return
    end
  end
  local due_ms = job.timestamp + (job.isParked and 0 or job.delay)
  local key = key_of(job.name)
  if lanes.bounds_keys and key and (followed or not job.isParked) then note_later(lanes, key, id, due_ms) end
  if followed then
    redis.call('HSET', lanes.jobs .. id, 'sluiceAfter', followed, 'delay', string.format('%.0f', due_ms - job.timestamp))
    local pair = lanes.jobs .. 'again:' .. job.dedupe.id
    redis.call('HSET', pair, 'of', followed, 'next', id)
    redis.call('PEXPIRE', pair, DAY_MS)
    delay_until(lanes, id, math.max(due_ms, lanes.now_ms + FOLLOW_MS))
  elseif job.isParked then
    delay_until(lanes, id, lanes.now_ms + job.delay)
    join(lanes, id)
    weigh(lanes, key, job.weights)
    lanes.has_joined, lanes.is_waiting = true, true
  elseif job.delay > 0 then
    delay_until(lanes, id, due_ms)
  else
    local count = redis.call('INCR', lanes.counter)
    redis.call('ZADD', lanes.prioritized, string.format('%.0f', job.priority * 2 ^ 32 + count % 2 ^ 32), id)
    redis.call('XADD', lanes.events, '*', 'event', 'waiting', 'jobId', id)
    lanes.is_waiting = true
  end
end

local function store(lanes, id, job)
  local key, dedupe = lanes.jobs .. id, job.dedupe
  redis.call('DEL', key)
  redis.call('HSET', key, 'name', job.name, 'data', job.data, 'opts', job.opts,
    'timestamp', string.format('%.0f', job.timestamp), 'delay', string.format('%.0f', job.delay), 'priority', job.priority)
  redis.call('XADD', lanes.events, '*', 'event', 'added', 'jobId', id, 'name', job.name)
  if not dedupe then return end
  redis.call('HSET', key, 'deid', dedupe.id)
  if dedupe.waitMs then redis.call('HSET', key, 'sluiceSince', string.format('%.0f', lanes.now_ms)) end
  local held = { lanes.jobs .. 'de:' .. dedupe.id, id }
  if dedupe.ttl then held[3], held[4] = 'PX', string.format('%.0f', dedupe.ttl) end
  redis.call('SET', unpack(held))
end

-- Replaces the data and options of a pending job. Its id, key, position and priority stay, and so do its times, except
-- for those of a debounced job.
local function replace(lanes, id, job)
  local key = lanes.jobs .. id
  local name, stored = unpack(redis.call('HMGET', key, 'name', 'opts'))
  local old, new = cjson.decode(stored), cjson.decode(job.opts)
  local ours, before = new.sluice or {}, old.sluice or {}
  new.delay, new.priority, new.timestamp, new.de = old.delay, old.priority, old.timestamp, old.de
  ours.ordered = before.ordered
  local due_ms = job.dedupe.waitMs and postpone(lanes, id, job.dedupe)
  if due_ms then
    new.delay = delay_of(lanes, id)
    if ours.maxWaitMs then ours.startByMs = due_ms + ours.maxWaitMs end
  else
    ours.maxWaitMs, ours.startByMs = before.maxWaitMs, before.startByMs
  end
  new.sluice = ours
  redis.call('HSET', key, 'data', job.data, 'opts', cjson.encode(new))
  local lane_key = key_of(name)
  if not lane_key or not redis.call('ZSCORE', lanes.lane .. lane_key, id) then return end
  if ours.share then
    redis.call('HSET', lanes.shares, id, ours.share)
    lanes.known.shares = true
  elseif has(lanes, 'shares') then redis.call('HDEL', lanes.shares, id) end
end

-- Returns the id of the stored job, and true if the new job was stored under it.
local function add(lanes, job)
  local what, id = meet(lanes, job)
  local kept = what == 'add' and kept_instead(lanes, job)
  if kept then what, id = 'keep', kept end
  if job.row then
    redis.call('ZADD', lanes.rows, lanes.now_ms, job.row)
    lanes.has_rows = true
  end
  if what == 'replace' then replace(lanes, id, job) end
  if job.dedupe and job.dedupe.cancels then cancel_running(lanes, what, id) end
  if what == 'keep' or what == 'replace' then
    local event = job.id == id and 'duplicated' or 'deduplicated'
    redis.call('XADD', lanes.events, '*', 'event', event, 'jobId', id)
    if job.id == id then add_children(lanes, id, job.children) end
    return id, false
  end
  local own_id = string.format('%.0f', redis.call('INCR', lanes.ids))
  if job.id then own_id = job.id end
  store(lanes, own_id, job)
  place(lanes, own_id, job, what == 'after' and id or nil)
  add_children(lanes, own_id, job.children)
  if job.keep and job.isParked then trim(lanes, own_id, job) end
  return own_id, true
end

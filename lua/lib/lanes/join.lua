-- @include lib/lanes/order
-- Returns the deadline for a job's start, in ms since 1970, or nil. For a run of a schedule, the wait counts from the
-- planned time.
local function start_by_of(opts, stored_at_ms)
  local ours = opts.sluice
  if ours.startByMs or not ours.maxWaitMs then return ours.startByMs end
  return stored_at_ms + (opts.delay or 0) + ours.maxWaitMs
end

-- Returns when a parked job may be fetched out of turn, so that a worker fails it as expired. Returns nil without a
-- deadline, and after the first attempt. A job that a worker returned had some time left by that worker's clock. If
-- it has none left by the clock of Redis, it waits for its turn, because otherwise it would be fetched and returned
-- again and again.
local function expires_at_of(lanes, start_by_ms, attempts_made, comes_back)
  local at_ms = tonumber(start_by_ms)
  if not at_ms or (tonumber(attempts_made) or 0) > 0 then return nil end
  if comes_back and at_ms <= lanes.now_ms then return nil end
  return at_ms
end

-- Parks a job in the lane of its key, at the position that it first had there. With is_anew, a job in its lane moves
-- behind all others. Does nothing for a job that runs, waits to be fetched, or no longer exists.
local function join(lanes, id, is_anew, comes_back)
  local job = lanes.jobs .. id
  local name, priority, stored_opts, seq, attempts_made, stored_at_ms =
    unpack(redis.call('HMGET', job, 'name', 'priority', 'opts', 'sluiceSeq', 'atm', 'timestamp'))
  local key = name and key_of(name)
  if not key or not redis.call('ZSCORE', lanes.delayed, id) then return nil end
  local lane = lanes.lane .. key
  if not lanes.has_paths and parent_of(key) ~= '' then
    redis.call('HSET', lanes.state, 'paths', 1)
    lanes.has_paths = true
  end
  if is_anew and not redis.call('ZSCORE', lane, id) then return nil end
  local opts = string.find(stored_opts or '', '"sluice"', 1, true) and cjson.decode(stored_opts)
  local ours = opts and type(opts.sluice) == 'table' and opts.sluice
  if not seq then set_order(lanes, key, ours and ours.ordered or nil) end
  if not seq or is_anew then
    seq = redis.call('HINCRBY', lanes.state, 'seq', 1)
    redis.call('HSET', job, 'sluiceSeq', seq)
  end
  local place = (tonumber(priority) or 0) * 2 ^ 48 + seq
  if redis.call('ZADD', lane, string.format('%.0f', place), id) == 1 then
    lanes.parked = lanes.parked + 1
    count_below(lanes, key, 1)
  end
  -- The score has BullMQ's format: ms, and 12 bits for the order. If the lanes are lost, the job becomes due when
  -- this delay ends.
  redis.call('ZADD', lanes.delayed, 'XX', string.format('%.0f', (lanes.now_ms + DAY_MS) * 4096), id)
  if ours then
    if tonumber(ours.share) then
      redis.call('HSET', lanes.shares, id, ours.share)
      lanes.known.shares = true
    end
    local lapses_at_ms = expires_at_of(lanes, start_by_of(opts, stored_at_ms), attempts_made, comes_back)
    -- In a lane that a dead letter blocks, a job fails only when its turn comes.
    if lapses_at_ms and ours.ordered ~= tonumber(HOLD) then
      redis.call('ZADD', lanes.deadlines, string.format('%.0f', lapses_at_ms), id)
      lanes.known.deadlines = true
    end
  end
  if waits_for_head(lanes, key, id) then return key end
  if not is_in_line(lanes, key) then make_ready(lanes, key) end
  return key
end

-- Returns the unused part of a job's turn to its lane and to each parent above. Removes the blocked item, which is
-- the lane or one of its parents, from its line.
local function give_back(lanes, parent, item, share, blocked_item)
  local line, finish = line_of(lanes, parent), finish_of(lanes, parent)
  local score = redis.call('ZSCORE', line, item)
  local tag = tonumber(score or redis.call('ZSCORE', finish, item)) or 0
  tag = tag - share / weight_of(lanes, item, parent)
  if parent == '' then tag = math.max(lanes.v, tag) end
  local leaves = item == blocked_item and parent ~= item
  redis.call('ZADD', (leaves or not score) and finish or line, as_tag(tag), item)
  if leaves and score then redis.call('ZREM', line, item) end
  if parent == '' then return end
  if redis.call('EXISTS', line) == 0 then
    redis.call('UNLINK', finish)
    if leaves and score then blocked_item = parent end
  end
  give_back(lanes, parent_of(parent), parent, share, blocked_item)
end

-- Blocks a lane, or a parent above it, until there is room. Other lanes continue.
local function block(lanes, key, id, until_ms, blocked_item)
  give_back(lanes, parent_line_of(lanes, key), key, share_of(lanes, id), blocked_item)
  redis.call('ZADD', lanes.blocked, string.format('%.0f', until_ms), blocked_item)
  redis.call('HSET', lanes.slow, blocked_item, PROBES)
  lanes.known.slow = true
end

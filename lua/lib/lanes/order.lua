-- An ordered lane starts its next job only after its previous job, the head job, has ended. Until then the lane is in
-- `heads`, scored by when to check it again. If the head job is retried, returned or replayed, it is itself the next
-- job.

-- A worker reports the end of a head job. The report may be lost, and a tool that removes the job reports nothing. So
-- each lane is checked again after LOOK_MS or later, at about MOST_LOOKS lanes a second.
local LOOK_MS, MOST_LOOKS = 5000, 20
-- In a lane with this value, a dead letter blocks the key: the next job waits until the dead letter is replayed or
-- purged.
local HOLD = '2'

local function look_again_ms(lanes)
  return lanes.now_ms + math.max(LOOK_MS, math.floor(redis.call('ZCARD', lanes.heads) * 1000 / MOST_LOOKS))
end

-- Stores the setting for dead letters that a lane's newest job has; nil if the job is not ordered.
local function set_order(lanes, key, stuck)
  if not stuck and not lanes.is_ordered then return end
  local before, head = order_of(lanes, key)
  if stuck == tonumber(before) then return end
  if not stuck then
    redis.call('HDEL', lanes.ordered, key)
    redis.call('ZREM', lanes.heads, key)
    return
  end
  redis.call('HSET', lanes.ordered, key, string.format('%d %s', stuck, head or ''))
  redis.call('ZADD', lanes.heads, 'XX', lanes.now_ms, key)
  if not lanes.is_ordered then redis.call('HSET', lanes.state, 'ordered', 1) end
  lanes.is_ordered = true
end

-- True if a lane still waits for its head job, although another job has joined it.
local function waits_for_head(lanes, key, joined)
  if not lanes.is_ordered or not redis.call('ZSCORE', lanes.heads, key) then return false end
  local _, head = order_of(lanes, key)
  if head == joined then redis.call('ZREM', lanes.heads, key) end
  return head ~= joined
end

-- Returns when to check again whether a head job has ended, in ms since 1970; nil if it has ended.
local function head_until_ms(lanes, stuck, head)
  local name, ended, cancelled =
    unpack(redis.call('HMGET', lanes.jobs .. head, 'name', 'finishedOn', 'sluice:cancelled'))
  if not name then return nil end
  if ended then
    local is_kept = stuck == HOLD and not cancelled and redis.call('ZSCORE', lanes.jobs .. 'failed', head)
    return is_kept and look_again_ms(lanes) or nil
  end
  local due = redis.call('ZSCORE', lanes.delayed, head)
  if not due then return look_again_ms(lanes) end
  return math.min(look_again_ms(lanes), math.max(lanes.now_ms + 1, math.floor(due / 4096)))
end

-- Checks a lane that waits for its head job. An empty lane is removed once the head job has ended.
local function wake_head(lanes, key)
  if redis.call('ZREM', lanes.heads, key) == 0 then return end
  if redis.call('EXISTS', lanes.lane .. key) == 1 then
    if not is_in_line(lanes, key) then make_ready(lanes, key) end
    return
  end
  local stuck, head = order_of(lanes, key)
  local until_ms = stuck and head ~= '' and head_until_ms(lanes, stuck, head)
  if until_ms then redis.call('ZADD', lanes.heads, string.format('%.0f', until_ms), key)
  else redis.call('HDEL', lanes.ordered, key) end
end

local function wake_due_heads(lanes)
  local due = redis.call('ZRANGEBYSCORE', lanes.heads, '-inf', lanes.now_ms, 'LIMIT', 0, 200)
  for _, key in ipairs(due) do wake_head(lanes, key) end
end

-- Records the job that a lane has started as its head job.
local function set_head(lanes, key, stuck, id)
  redis.call('HSET', lanes.ordered, key, stuck .. ' ' .. id)
  redis.call('ZADD', lanes.heads, string.format('%.0f', look_again_ms(lanes)), key)
end

-- @include lib/lanes/lanes
-- @include lib/lanes/order
-- Counts the parked jobs that cannot run within soon_ms, although they are due.

-- The most paused keys and ordered lanes to look at, because Redis is blocked during the look.
local MOST_BLOCKED = 1000

-- True if a key or one of its parents is paused for longer than soon_ms.
local function is_paused(lanes, key, soon_ms)
  local text = key
  while text ~= '' do
    local until_ms = paused_until(lanes, text)
    if until_ms and until_ms > lanes.now_ms + soon_ms then return true end
    text = parent_of(text)
  end
  return false
end

-- True if an ordered lane waits for a job that is a dead letter, or that is retried later.
local function is_stuck(lanes, key, soon_ms)
  local stuck, head = order_of(lanes, key)
  if not stuck or head == '' then return false end
  local ended, cancelled = unpack(redis.call('HMGET', lanes.jobs .. head, 'finishedOn', 'sluice:cancelled'))
  if ended then
    return stuck == HOLD and not cancelled and redis.call('ZSCORE', lanes.jobs .. 'failed', head) ~= false
  end
  local due = redis.call('ZSCORE', lanes.delayed, head)
  return due ~= false and tonumber(due) / 4096 > lanes.now_ms + soon_ms and not redis.call('ZSCORE', lanes.lane .. key, head)
end

-- Counts the parked jobs that cannot run. If there are more paused keys or ordered lanes than MOST_BLOCKED, the jobs of
-- the others count as jobs that can run.
local function blocked_jobs(lanes, soon_ms)
  local blocked = 0
  local from = '(' .. string.format('%.0f', lanes.now_ms + soon_ms)
  for _, key in ipairs(redis.call('ZRANGEBYSCORE', lanes.paused, from, '+inf', 'LIMIT', 0, MOST_BLOCKED)) do
    if not is_paused(lanes, parent_of(key), soon_ms) then
      blocked = blocked + redis.call('ZCARD', lanes.lane .. key) + (tonumber(redis.call('HGET', lanes.below, key)) or 0)
    end
  end
  if not lanes.is_ordered then return blocked end
  for _, key in ipairs(redis.call('ZRANGE', lanes.heads, 0, MOST_BLOCKED - 1)) do
    if not is_paused(lanes, key, soon_ms) and is_stuck(lanes, key, soon_ms) then blocked = blocked + redis.call('ZCARD', lanes.lane .. key) end
  end
  return blocked
end

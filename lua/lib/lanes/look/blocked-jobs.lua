-- @include lib/lanes/lanes
-- @include lib/lanes/order
-- Counts the parked jobs that cannot run within soon_ms, although they are due.

-- About how many paused keys or ordered lanes one run looks at, because Redis is blocked during the look.
local LOOKED_AT_ONCE = 1000

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

-- Counts the parked jobs of a paused key and below it. A key below a longer pause is counted there.
local function paused_jobs(lanes, key, until_ms, soon_ms)
  if until_ms <= lanes.now_ms + soon_ms or is_paused(lanes, parent_of(key), soon_ms) then return 0 end
  return redis.call('ZCARD', lanes.lane .. key) + (tonumber(redis.call('HGET', lanes.below, key)) or 0)
end

-- Counts the parked jobs of an ordered lane that wait for its head job.
local function stuck_jobs(lanes, key, _, soon_ms)
  if is_paused(lanes, key, soon_ms) or not is_stuck(lanes, key, soon_ms) then return 0 end
  return redis.call('ZCARD', lanes.lane .. key)
end

-- Counts the parked jobs that cannot run, on one page of the paused keys and then of the ordered lanes. A page is
-- "paused" or "heads", and a cursor of ZSCAN. With ranks, a look could miss lanes while others move.
-- Also returns the next page; '' after the last one.
local function blocked_jobs(lanes, soon_ms, page)
  local kind, from = string.match(page, '^(%a+) (%d+)$')
  local blocked, count = 0, kind == 'paused' and paused_jobs or stuck_jobs
  local cursor, found = unpack(redis.call('ZSCAN', lanes[kind], from, 'COUNT', LOOKED_AT_ONCE))
  for at = 1, #found, 2 do blocked = blocked + count(lanes, found[at], tonumber(found[at + 1]), soon_ms) end
  if cursor ~= '0' then return blocked, kind .. ' ' .. cursor end
  return blocked, kind == 'paused' and lanes.is_ordered and 'heads 0' or ''
end

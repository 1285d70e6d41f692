-- @include lib/lanes/due
-- @include lib/lanes/states/cancelled
-- Records how parents ended, and releases the children that wait for nothing more. Each outcome counts once, so a
-- caller that does not know whether its message has arrived sends the message again.

-- Makes a child due now, or after its own delay.
local function start(lanes, id, at_once)
  local job = lanes.jobs .. id
  local name, held, opts, stored_at_ms, weights =
    unpack(redis.call('HMGET', job, 'name', 'sluice:hold', 'opts', 'timestamp', 'sluice:weights'))
  local kind, ms = string.match(held or '', '^(%a+) (%d+)$')
  local due_ms = lanes.now_ms
  if kind == 'in' and not at_once then due_ms = due_ms + tonumber(ms) end
  if kind == 'at' and not at_once then due_ms = math.max(due_ms, tonumber(ms)) end
  local delay_ms = delay_from(due_ms, tonumber(stored_at_ms) or 0)
  redis.call('HDEL', job, 'sluice:awaits')
  redis.call('HSET', job, 'delay', string.format('%.0f', delay_ms), 'opts', with_due(opts or '{}', due_ms, delay_ms),
    'sluice:due', string.format('%.0f', due_ms))
  redis.call('ZREM', lanes.flows.waiting, id)
  -- Keeps the order of children that become due at the same time.
  lanes.started = math.min((lanes.started or -1) + 1, 4095)
  redis.call('ZADD', lanes.delayed, string.format('%.0f', due_ms * 4096 + lanes.started), id)
  if weights then weigh(lanes, key_of(name), cjson.decode(weights)) end
  lanes.is_waiting = true
end

-- Takes a child back that failed because of its parents, or is about to. Returns false if a worker holds it.
local function take_back(lanes, id, name, dedupe_id)
  local job = lanes.jobs .. id
  if redis.call('ZREM', lanes.failed, id) == 0 then
    local place = location_of(lanes, id, key_of(name))
    if place then leave_location(lanes, id, key_of(name), place) end
    return place ~= nil
  end
  redis.call('HDEL', job, 'finishedOn', 'processedOn', 'failedReason', 'stacktrace', 'atm', 'ats', 'stc',
    'sluice:failure', 'sluice:due', 'sluiceSeq')
  -- A dedupeId with a time limit is not released when the job fails.
  if dedupe_id and not string.find(redis.call('HGET', job, 'opts') or '', '"ttl"', 1, true) then
    redis.call('SET', lanes.jobs .. 'de:' .. dedupe_id, id, 'NX')
  end
  return true
end

local function cancel_child(lanes, id, dedupe_id)
  redis.call('ZREM', lanes.delayed, id)
  publish_cancelled(lanes.events, lanes.jobs .. 'cancelled:' .. id, id)
  erase(lanes, id, dedupe_id, 'delayed')
end

-- Applies the failure ('f') or the cancellation ('c') of a parent. Returns true if the child was removed.
local function apply_failure(lanes, id, child, state, reason)
  if child.on_failure == 'run' then return false end
  if state == 'c' or child.on_failure == 'skip' then
    if child.awaits then cancel_child(lanes, id, child.dedupe_id) end
    return child.awaits ~= false
  end
  if child.was_failed then return false end
  redis.call('HINCRBY', lanes.jobs .. id, 'sluice:failed', 1)
  if child.awaits then
    redis.call('HSET', lanes.jobs .. id, 'sluice:blame', reason)
    start(lanes, id, true)
  end
  return false
end

-- Resumes a child whose failed parents are all done after a replay. Returns true if the child waits again.
local function resume(lanes, id, child)
  local job = lanes.jobs .. id
  if child.on_failure ~= 'fail' or redis.call('HINCRBY', job, 'sluice:failed', -1) > 0 then return false end
  if redis.call('HDEL', job, 'sluice:blame') == 0 then return false end
  if not take_back(lanes, id, child.name, child.dedupe_id) then return false end
  hold(lanes, id)
  return true
end

-- Makes a child wait again for a parent that had failed and is replayed. Returns 3 if the child was a dead letter because
-- of it, else 1.
local function await_again(lanes, id, parent, child)
  if not child.was_failed then return 1 end
  if not child.awaits and redis.call('HEXISTS', lanes.jobs .. id, 'sluice:blame') == 0 then return 1 end
  redis.call('HDEL', lanes.flows.outcomes .. id, parent)
  redis.call('ZADD', lanes.flows.awaited .. id, child.index, parent)
  return resume(lanes, id, child) and 3 or 1
end

-- True if a worker holds a child, and is about to fail it because of a parent.
local function is_failing(lanes, id, name)
  return redis.call('HEXISTS', lanes.jobs .. id, 'sluice:blame') == 1
    and not redis.call('ZSCORE', lanes.failed, id) and not location_of(lanes, id, key_of(name))
end

-- Records the outcome of one parent of a child. The state is 'd' for done, 'f' for failed, 'c' for cancelled or removed,
-- 'm' for never stored, and 'r' for a dead letter that is replayed. Returns 0 if there is no such child, or if it cannot be
-- resumed yet. Returns 0 also if it is the final job of an open group without this parent. Returns 2 if the child was
-- removed, 3 if it waits again, else 1.
local function release(lanes, id, parent, state, text)
  local job, awaited, outcomes = lanes.jobs .. id, lanes.flows.awaited .. id, lanes.flows.outcomes .. id
  local name, on_failure, awaits, open, dedupe_id, extended =
    unpack(redis.call('HMGET', job, 'name', 'sluice:parents', 'sluice:awaits', 'sluice:open', 'deid', 'sluice:extended'))
  if not name then return 0 end
  local index, known = redis.call('ZSCORE', awaited, parent), redis.call('HGET', outcomes, parent)
  local was_failed = known and string.sub(known, 1, 1) == 'f'
  -- The parent may be in an earlier group with the same ids. It must stay listed until it is added to this group.
  if not index and not known and open then return 0 end
  -- Only the outcome of a dead letter changes, by a replay.
  if not index and (not was_failed or state == 'f') then return 1 end
  index = index or string.match(known, '^%a (%d+)')
  local child = { name = name, on_failure = on_failure, awaits = awaits, dedupe_id = dedupe_id, was_failed = was_failed, index = index }
  if was_failed and state ~= 'f' and not awaits and is_failing(lanes, id, name) then
    if state == 'r' then return 1 end
    -- The next check of the child reads this parent again.
    redis.call('ZADD', awaited, index, parent)
    redis.call('ZADD', lanes.flows.waiting, string.format('%.0f', lanes.now_ms + CHECK_MS), id)
    return 0
  end
  if state == 'r' then return await_again(lanes, id, parent, child) end
  redis.call('ZREM', awaited, parent)
  -- A job that was announced to a group and never stored is no parent.
  if state ~= 'm' or not extended then redis.call('HSET', outcomes, parent, state .. ' ' .. index .. ' ' .. text) end
  if state == 'f' or state == 'c' then
    if apply_failure(lanes, id, child, state, parent .. '\n' .. text) then return 2 end
    if on_failure ~= 'run' then return 1 end
  elseif was_failed then
    awaits = resume(lanes, id, child) or awaits
  end
  if awaits and not open and redis.call('EXISTS', awaited) == 0 then start(lanes, id, false) end
  return 1
end

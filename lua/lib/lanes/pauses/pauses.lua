-- Ends the pauses of keys and of the queue whose time is over. The queue's field in BullMQ's meta is 1, or the end of
-- the pause in ms since 1970. Returns whether the queue is still paused, and for how many ms if that is known.
local function end_due_pauses(lanes, pause)
  if lanes.paused_keys > 0 and redis.call('ZREMRANGEBYSCORE', lanes.paused, '-inf', lanes.now_ms) > 0 then
    lanes.paused_keys = redis.call('ZCARD', lanes.paused)
    redis.call('HSET', lanes.state, 'pausedKeys', lanes.paused_keys)
  end
  if not pause then return false end
  local until_ms = tonumber(pause) or 1
  if until_ms <= 1 then return true end
  if until_ms > lanes.now_ms then return true, math.ceil(until_ms - lanes.now_ms) end
  redis.call('HDEL', lanes.meta, 'paused')
  redis.call('XADD', lanes.events, '*', 'event', 'resumed')
  return false
end

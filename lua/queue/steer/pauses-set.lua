--[[
  pauses-set: pauses a queue, or one key with all keys below it, or ends such a pause. A pause blocks the key's lane.

  KEYS  as in lanes-join, then [6] list: old versions of BullMQ move the jobs of a paused queue to it
  ARGV  [1] prefix: the prefix of the queue's keys  [2] key: the key, "" for the whole queue
        [3] for_ms: ms for which it is paused: -1 without an end, 0 ends the pause
        [4] since: the generation that the caller has seen, or ""
  Reply [1] 1 if the pause was changed, 0 if another change came after that generation  [2] the current generation
        [3] 1 if a resumed queue has jobs that an old version of BullMQ moved to [6]
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/generation

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local put_away, key, for_ms, seen = KEYS[6], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local until_ms = string.format('%.0f', for_ms < 0 and FOREVER_MS or lanes.now_ms + for_ms)
local is_next, generation = next_generation(lanes.state, seen, lanes.now_ms)
if not is_next then return { 0, generation, 0 } end

local function block_key()
  leave_line(lanes, parent_of(key), key)
  if redis.call('EXISTS', lanes.lane .. key) == 1 or has_below(lanes, key) then
    redis.call('ZADD', lanes.blocked, until_ms, key)
  end
end

-- Writes the same fields and events as BullMQ's own pause and resume, and also stores the end of the pause.
local function set_queue()
  if for_ms == 0 then
    redis.call('HDEL', lanes.meta, 'paused')
    redis.call('ZADD', lanes.marker, 0, '0')
  else
    redis.call('HSET', lanes.meta, 'paused', for_ms < 0 and 1 or until_ms)
    redis.call('DEL', lanes.marker)
  end
  redis.call('XADD', lanes.events, '*', 'event', for_ms == 0 and 'resumed' or 'paused')
end

redis.call('HINCRBY', lanes.state, 'orders', 1)
if key == '' then
  set_queue()
elseif for_ms == 0 then
  redis.call('ZREM', lanes.paused, key)
else
  redis.call('ZADD', lanes.paused, until_ms, key)
  block_key()
end
lanes.paused_keys = redis.call('ZCARD', lanes.paused)
redis.call('HSET', lanes.state, 'pausedKeys', lanes.paused_keys)
if key ~= '' and for_ms == 0 then
  wake_lane(lanes, key)
  announce(lanes)
elseif for_ms > 0 then
  -- Wakes a worker, which then reads when the pause ends.
  redis.call('ZADD', lanes.marker, 0, '0')
end
return { 1, generation, key == '' and for_ms == 0 and redis.call('EXISTS', put_away) or 0 }

--[[
  pauses-set: pauses a queue or one key of it, with all below it, or ends the pause of a key. Its lane steps aside.

  KEYS  as in lanes-join
  ARGV  [1] the prefix of the queue's keys  [2] the key, "" for the whole queue
        [3] ms for which it is paused: -1 without an end, 0 ends the pause of a key
  Reply nothing
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local key, for_ms = ARGV[2], tonumber(ARGV[3])
local until_ms = string.format('%.0f', for_ms < 0 and FOREVER_MS or lanes.now_ms + for_ms)

local function set_aside()
  leave_line(lanes, head_of(key), key)
  if redis.call('EXISTS', lanes.lane .. key) == 1 or has_below(lanes, key) then
    redis.call('ZADD', lanes.blocked, until_ms, key)
  end
end

redis.call('HINCRBY', lanes.state, 'orders', 1)
if key == '' then
  -- As BullMQ's own pause does, but for its end.
  redis.call('HSET', lanes.meta, 'paused', for_ms < 0 and 1 or until_ms)
  redis.call('DEL', lanes.marker)
  redis.call('XADD', lanes.events, '*', 'event', 'paused')
elseif for_ms == 0 then
  redis.call('ZREM', lanes.paused, key)
else
  redis.call('ZADD', lanes.paused, until_ms, key)
  set_aside()
end
lanes.paused_keys = redis.call('ZCARD', lanes.paused)
redis.call('HSET', lanes.state, 'pausedKeys', lanes.paused_keys)
if key ~= '' and for_ms == 0 then
  wake_lane(lanes, key)
  announce(lanes)
elseif for_ms > 0 then
  -- A worker that asks now learns when the pause ends.
  redis.call('ZADD', lanes.marker, 0, '0')
end
return 1

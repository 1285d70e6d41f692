--[[
  flows-waiting: reads children that have waited for a while, because the message that a parent has ended may be lost.
  Each is checked again later. A child that waits for no parent and for no group to close starts.

  KEYS  as in lanes-join
  ARGV  [1] prefix: the prefix of the queue's keys  [2] again_ms: ms until they are checked again
        [3] most: the most children  [4] most_parents: the most parents, in all
        [5] announced_ms: how long jobs of a group may be announced before they are stored, unless the group has another
            time
  Reply for each child: its id; 1 if parents that are not stored may still be stored, else 0; and a list of parents
        that it waits for. The time of [5] begins when jobs were last added to the group, or when the child was stored.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/weights
-- @include lib/lanes/states/unbegun
-- @include lib/flows/hold
-- @include lib/flows/release

local prefix, again_ms, most, most_parents = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local announced_ms = tonumber(ARGV[5])
local now, reply, read = now_ms(), {}, 0
local lanes = open_lanes(KEYS, prefix, now)
lanes.flows = flow_names(prefix)
local waiting = lanes.flows.waiting
for _, id in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', 0, most)) do
  if read >= most_parents then break end
  local awaits, open, extended, own_ms, stored_at_ms, blame = unpack(redis.call('HMGET', prefix .. id, 'sluice:awaits',
    'sluice:open', 'sluice:extended', 'sluice:announced', 'timestamp', 'sluice:blame'))
  local awaited = lanes.flows.awaited .. id
  local count = redis.call('ZCARD', awaited)
  if awaits and not open and count == 0 then
    start(lanes, id, false)
  elseif awaits or blame and count > 0 then
    -- Reads another part of many parents each time.
    local parts = math.max(1, math.ceil(count / most_parents))
    local first = math.floor(now / again_ms) % parts * most_parents
    local parents = redis.call('ZRANGE', awaited, first, first + most_parents - 1)
    read = read + #parents
    local since_ms = now - tonumber(extended or stored_at_ms)
    reply[#reply + 1], reply[#reply + 2] = id, since_ms < (tonumber(own_ms) or announced_ms) and 1 or 0
    reply[#reply + 1] = parents
    redis.call('ZADD', waiting, string.format('%.0f', now + again_ms), id)
  else
    redis.call('ZREM', waiting, id)
  end
end
if lanes.is_changed then close_lanes(lanes) end
if lanes.is_waiting then announce(lanes) end
return reply

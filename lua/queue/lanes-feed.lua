--[[
  lanes-feed: decides the next jobs. A worker reports what came to it and how many jobs it wants; as many jobs as all
  workers want then leave their lanes, by feed() in lib/lanes/lanes.lua, for where BullMQ's workers fetch.

  KEYS  as in lanes-join
  ARGV  [1] the prefix of the queue's keys  [2] the worker  [3] how many it wants, below 0 if it has
        too many  [4] ms for which that holds
        [5] JSON: { arrived: ids of jobs that it fetched,
                    probes: { key, whether its slot came at once } of probes that have started,
                    woken: keys that may have room again, "*" for all }
  Reply for each job that arrived: 0 it was not fed, 1 it was, 2 it is a probe (let out alone, to see if there is room);
        then how many are parked, ms until the next lane that is aside comes back (-1: none is), and how many jobs
        workers hold
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local news = cjson.decode(ARGV[5])
local reply = {}

for at, id in ipairs(news.arrived) do
  reply[at] = redis.call('ZREM', lanes.fed, id)
  if reply[at] == 1 and has(lanes, 'slow') then
    local key = key_of(redis.call('HGET', lanes.jobs .. id, 'name') or '')
    if key and redis.call('HEXISTS', lanes.slow, key) == 1 then reply[at] = 2 end
  end
end

for _, probe in ipairs(news.probes) do
  local key, went_at_once = probe[1], probe[2]
  local left = tonumber(redis.call('HGET', lanes.slow, key)) or 0
  if left > 0 then
    left = went_at_once and left - 1 or PROBES
    if left == 0 then redis.call('HDEL', lanes.slow, key) else redis.call('HSET', lanes.slow, key, left) end
    wake_lane(lanes, key)
  end
end

for _, key in ipairs(news.woken) do
  if key == '*' then
    for _, blocked in ipairs(redis.call('ZRANGE', lanes.blocked, 0, -1)) do wake_lane(lanes, blocked) end
  elseif redis.call('ZSCORE', lanes.blocked, key) then
    wake_lane(lanes, key)
  end
end

redis.call('HSET', KEYS[6], ARGV[2], ARGV[3] .. ' ' .. string.format('%.0f', lanes.now_ms + ARGV[4]))
feed(lanes, KEYS[6])
if lanes.is_changed then close_lanes(lanes) end
reply[#reply + 1] = lanes.parked
local next_due = redis.call('ZRANGE', lanes.blocked, 0, 0, 'WITHSCORES')
reply[#reply + 1] = next_due[2] and math.max(0, tonumber(next_due[2]) - lanes.now_ms) or -1
reply[#reply + 1] = redis.call('LLEN', ARGV[1] .. 'active')
return reply

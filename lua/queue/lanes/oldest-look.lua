--[[
  oldest-look: finds the oldest of the jobs of a queue that are due and have not begun. Changes nothing.

  KEYS  [1] wait  [2] prioritized, both BullMQ's  [3] hash: the live workers
  ARGV  [1] the prefix of the queue's keys  [2] the most lanes to read
  Reply its id, and since when it waits, in ms since 1970: when it was due, or when its last attempt began; nothing if none
        waits
]]
-- @include lib/now-ms
-- @include lib/lanes/line
-- @include lib/lanes/look/fetched-jobs
-- @include lib/lanes/look/read-lanes
local wait, prioritized, live = KEYS[1], KEYS[2], KEYS[3]
local prefix, most = ARGV[1], tonumber(ARGV[2])
local lanes = lane_names(prefix)
local oldest, since_ms

local function look(id)
  local stored_at_ms, opts, attempts, started_ms =
    unpack(redis.call('HMGET', prefix .. id, 'timestamp', 'opts', 'atm', 'processedOn'))
  if not stored_at_ms then return end
  local delay_ms = tonumber(cjson.decode(opts or '{}').delay) or 0
  -- Ten seconds mark a job that is on its way to its lane.
  local due_ms = tonumber(stored_at_ms) + (delay_ms == 10000 and 0 or delay_ms)
  if (tonumber(attempts) or 0) > 0 and started_ms then due_ms = tonumber(started_ms) end
  if not since_ms or due_ms < since_ms then oldest, since_ms = id, due_ms end
end

-- The first of each priority: those of one come in the order in which they joined.
local function look_at_heads(ids, unit)
  local from = '-inf'
  while true do
    local head = redis.call('ZRANGEBYSCORE', ids, from, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    if #head == 0 then return end
    look(head[1])
    from = string.format('%.0f', (math.floor(tonumber(head[2]) / unit) + 1) * unit)
  end
end

for _, id in ipairs(redis.call('LRANGE', wait, -1, -1)) do look(id) end
look_at_heads(prioritized, 2 ^ 32)
local none_held = { places = {}, lanes = {}, joined = 0 }
local read = open_reading(lanes, none_held, most, now_ms(), function() return {} end)
for _, names in ipairs({ lanes.ready, lanes.blocked, lanes.heads }) do
  if #read.list < most then read.line(names) end
end
for _, lane in ipairs(read.list) do look_at_heads(lanes.lane .. lane[1], 2 ^ 48) end
-- Workers list those that they have fetched and not begun, the first of them first.
for _, worker in ipairs(redis.call('HKEYS', live)) do
  local ids = redis.call('GET', lanes.held .. worker)
  local first = ids and cjson.decode(ids)[1]
  if first then look(first) end
end
return oldest and { oldest, string.format('%.0f', since_ms) } or {}

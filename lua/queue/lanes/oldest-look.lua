--[[
  oldest-look: finds the oldest job of a queue that is due and has not begun, among some lanes. Changes nothing.

  KEYS  [1] wait  [2] prioritized  [3] delayed, all BullMQ's  [4] hash: the live workers
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] others: 1 to include jobs without a lane, and jobs that workers have fetched
        [3…] of_keys: the keys of the lanes to check
  Reply the job's id, and when it became due (again), in ms since 1970; nothing if there is no such job
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lane-keys
local wait, prioritized, delayed, live = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, has_others = ARGV[1], ARGV[2] == '1'
local lanes = lane_names(prefix)
local oldest, since_ms

-- Returns whether the job exists and has not ended.
local function look(id)
  local stored_at_ms, opts, ended, again_ms =
    unpack(redis.call('HMGET', prefix .. id, 'timestamp', 'opts', 'finishedOn', 'sluice:due'))
  if not stored_at_ms or ended then return false end
  local delay_ms = opts and string.find(opts, '"delay":', 1, true) and tonumber(cjson.decode(opts).delay) or 0
  -- A delay of ten seconds marks a job on its way to its lane.
  local due_ms = tonumber(stored_at_ms) + (delay_ms == 10000 and 0 or delay_ms)
  if again_ms then due_ms = tonumber(again_ms) end
  if not since_ms or due_ms < since_ms then oldest, since_ms = id, due_ms end
  return true
end

-- Checks only the first job of each priority, because jobs of the same priority are sorted by when they joined.
local function look_at_heads(ids, unit)
  local last = redis.call('ZRANGE', ids, -1, -1, 'WITHSCORES')
  local from, last_from = '-inf', last[2] and math.floor(tonumber(last[2]) / unit) * unit
  while last_from and (from == '-inf' or from <= last_from) do
    local first = from == '-inf' and from or string.format('%.0f', from)
    local head = redis.call('ZRANGEBYSCORE', ids, first, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    look(head[1])
    from = (math.floor(tonumber(head[2]) / unit) + 1) * unit
  end
end

for at = 3, #ARGV do look_at_heads(lanes.lane .. ARGV[at], 2 ^ 48) end
if has_others then
  for _, id in ipairs(redis.call('LRANGE', wait, -1, -1)) do look(id) end
  look_at_heads(prioritized, 2 ^ 32)
  -- Due jobs may still be in the delayed set until the next fetch of a worker moves them to their lanes.
  local first_due = redis.call('ZRANGEBYSCORE', delayed, '-inf', now_ms() * 4096 + 4095, 'LIMIT', 0, 1)
  if first_due[1] then look(first_due[1]) end
  -- Each worker lists the jobs that it has fetched and not begun, in the order in which it will start them.
  for _, worker in ipairs(redis.call('HKEYS', live)) do
    local ids = redis.call('GET', lanes.held .. worker)
    for _, id in ipairs(ids and cjson.decode(ids) or {}) do
      if look(id) then break end
    end
  end
end
return oldest and { oldest, string.format('%.0f', since_ms) } or {}

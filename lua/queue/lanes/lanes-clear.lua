--[[
  lanes-clear: removes the entries of deleted jobs from lanes, up to a thousand. Jobs that join a lane in the
  meantime stay.

  KEYS  as in lanes-join
  ARGV  [1] prefix: the prefix of the queue's keys  [2] begins: 1 for the first run, 0 for the following ones
  Reply 1 if there is more to do, else 0
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes

local MOST = 1000
local lanes = open_lanes(KEYS, ARGV[1], now_ms())

-- Stores which lanes to check, and how far each was checked, because workers and producers change the lanes between
-- two runs.
if tonumber(ARGV[2]) == 1 then
  local lines = { lanes.ready, lanes.blocked, lanes.heads }
  for _, parent in ipairs(lanes.has_paths and redis.call('HKEYS', lanes.below) or {}) do
    lines[#lines + 1] = line_of(lanes, parent)
  end
  for _, names in ipairs(lines) do
    for _, key in ipairs(redis.call('ZRANGE', names, 0, -1)) do redis.call('ZADD', lanes.uncleared, 0, key) end
  end
  redis.call('PEXPIRE', lanes.uncleared, DAY_MS)
end

-- Checks up to `most` jobs of a lane. Returns the number of checked jobs.
local function clear(key, place, most)
  local lane = lanes.lane .. key
  local jobs = redis.call('ZRANGEBYSCORE', lane, '(' .. place, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
  for at = 1, #jobs, 2 do
    if not redis.call('ZSCORE', lanes.delayed, jobs[at]) then
      redis.call('ZREM', lane, jobs[at])
      forget_job(lanes, jobs[at], key)
    end
  end
  if #jobs == 2 * most then
    redis.call('ZADD', lanes.uncleared, jobs[#jobs], key)
  else
    redis.call('ZREM', lanes.uncleared, key)
    if redis.call('EXISTS', lane) == 0 then forget_lane(lanes, key) end
  end
  return #jobs / 2
end

local looked_at = 0
while looked_at < MOST do
  local next_lane = redis.call('ZRANGE', lanes.uncleared, 0, 0, 'WITHSCORES')
  if #next_lane == 0 then break end
  looked_at = looked_at + 1 + clear(next_lane[1], next_lane[2], MOST - looked_at)
end
if redis.call('EXISTS', lanes.ready, lanes.blocked, lanes.heads) == 0 then
  redis.call('UNLINK', lanes.shares, lanes.deadlines)
  lanes.parked = 0
end
close_lanes(lanes)
return redis.call('EXISTS', lanes.uncleared)

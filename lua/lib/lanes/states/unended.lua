-- How long a job is delayed that must run after another job. Then that other job is checked, because the message
-- about its end may be lost.
local FOLLOW_MS = 10000

-- True if a job exists and has not ended.
local function is_unended(lanes, id)
  local stored, ended = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'finishedOn'))
  return stored ~= false and not ended
end

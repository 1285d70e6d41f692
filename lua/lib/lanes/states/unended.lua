-- How long a job is delayed that is to run after another one. Then the other job is checked, in case the message that
-- it ended was lost.
local FOLLOW_MS = 10000

-- True if a job exists and has not ended.
local function is_unended(lanes, id)
  local stored, ended = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'finishedOn'))
  return stored ~= false and not ended
end

-- How long a job is delayed that is to run after another. If nobody says that the other has ended, it is looked at then.
local FOLLOW_MS = 10000

-- Whether a job is there and has neither been done nor failed for the last time.
local function is_unended(lanes, id)
  local stored, ended = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'finishedOn'))
  return stored ~= false and not ended
end

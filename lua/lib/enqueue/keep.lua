-- @include lib/lanes/states/unbegun
-- Bounds how many due jobs of a key wait. Only jobs in the lane of the key count.

-- The most jobs that one new job removes, because Redis is blocked during the removal.
local MOST_TRIMMED = 1000

-- Returns the waiting job that stays in place of a new job; nil if the new job is stored.
local function kept_instead(lanes, job)
  local key = key_of(job.name)
  if not job.keep or job.keep.mode ~= 'oldest' or not key then return nil end
  local lane = lanes.lane .. key
  if redis.call('ZCARD', lane) < job.keep.most then return nil end
  return redis.call('ZRANGE', lane, -1, -1)[1]
end

-- Removes the oldest jobs of the key of a new job that is in its lane. Runs of schedules stay, because other runs follow
-- them.
local function trim(lanes, id, job)
  local key = key_of(job.name)
  local lane = lanes.lane .. key
  local excess = math.min(redis.call('ZCARD', lane) - job.keep.most, MOST_TRIMMED)
  if excess <= 0 then return end
  local waiting, all = {}, redis.call('ZRANGE', lane, 0, 2 * MOST_TRIMMED - 1, 'WITHSCORES')
  for at = 1, #all, 2 do
    -- A place in a lane is the priority, and 48 bits for the order in which the jobs have joined.
    -- A job that has begun, and is retried, stays.
    local has_begun = (tonumber(redis.call('HGET', lanes.jobs .. all[at], 'atm')) or 0) > 0
    if all[at] ~= id and string.sub(all[at], 1, 7) ~= 'repeat:' and not has_begun then
      waiting[#waiting + 1] = { all[at], tonumber(all[at + 1]) % 2 ^ 48 }
    end
  end
  table.sort(waiting, function(one, other) return one[2] < other[2] end)
  for at = 1, math.min(excess, #waiting) do
    local old = waiting[at][1]
    local dedupe_id = redis.call('HGET', lanes.jobs .. old, 'deid')
    leave_location(lanes, old, key, 'lane')
    erase(lanes, old, dedupe_id, 'lane')
  end
  -- An ordered lane may have waited for one of these jobs.
  if lanes.is_ordered then redis.call('ZADD', lanes.heads, 'XX', lanes.now_ms, key) end
end

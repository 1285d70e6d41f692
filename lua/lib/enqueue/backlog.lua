-- Limits the number of pending jobs, in total and for each key. A lane counts the parked jobs of its key. Jobs of the
-- key that were stored for a later time are in a separate index, because the delayed set does not store keys.

-- The most index entries that one run checks.
local MOST_LOOKED = 1000

local function later_of(lanes, key)
  return lanes.jobs .. 'later:' .. key
end

-- Adds a job with a later due time to the index.
local function note_later(lanes, key, id, due_ms)
  local later = later_of(lanes, key)
  redis.call('ZADD', later, string.format('%.0f', due_ms), id)
  local last_ms = tonumber(redis.call('ZRANGE', later, -1, -1, 'WITHSCORES')[2])
  redis.call('PEXPIRE', later, string.format('%.0f', math.max(0, last_ms - lanes.now_ms) + DAY_MS))
end

-- Counts the pending jobs of a key. Only if the count exceeds the limit does it remove index entries of jobs that have
-- joined the lane or ended since.
local function waiting_of(lanes, key, most)
  local lane, later = lanes.lane .. key, later_of(lanes, key)
  local parked, delayed = redis.call('ZCARD', lane), redis.call('ZCARD', later)
  if delayed == 0 or parked + delayed <= most then return parked + delayed end
  -- Checks a different part of a long index each time.
  local parts = math.ceil(delayed / MOST_LOOKED)
  local first = lanes.now_ms % parts * MOST_LOOKED
  for _, id in ipairs(redis.call('ZRANGE', later, first, first + MOST_LOOKED - 1)) do
    if redis.call('ZSCORE', lane, id) or not redis.call('ZSCORE', lanes.delayed, id) then
      delayed = delayed - redis.call('ZREM', later, id)
    end
  end
  return parked + delayed
end

-- Counts the jobs that would be new, in total and by key.
local function count_new(lanes, jobs)
  local seen, all, of_key = {}, 0, {}
  for _, job in ipairs(jobs) do
    local what = meet(lanes, job)
    local id, dedupe = job.id and 'id ' .. job.id or '', job.dedupe and 'of ' .. job.dedupe.id or ''
    if (what == 'add' or what == 'after') and not seen[id] and not seen[dedupe] then
      local key = key_of(job.name)
      all = all + 1
      if key then of_key[key] = (of_key[key] or 0) + 1 end
      if id ~= '' then seen[id] = true end
      if dedupe ~= '' then seen[dedupe] = true end
    end
  end
  return all, of_key
end

-- Returns the number of pending jobs, the limit and its key if storing these jobs would exceed a limit. Otherwise
-- returns nil.
local function is_full(lanes, most, jobs)
  local all, of_key = count_new(lanes, jobs)
  if most.all and all > 0 then
    local waiting = redis.call('ZCARD', lanes.prioritized) + redis.call('LLEN', lanes.wait) + redis.call('ZCARD', lanes.delayed)
    if waiting + all > most.all then return { waiting, most.all, '' } end
  end
  if not most.perKey then return nil end
  for key, added in pairs(of_key) do
    local waiting = waiting_of(lanes, key, most.perKey - added)
    if waiting + added > most.perKey then return { waiting, most.perKey, key } end
  end
  return nil
end

-- Returns the ms until a pause ends: -1 for a pause without an end, 0 if the pause is over.
local FOREVER_MS = 8.64e15
local function pause_left(until_ms, now)
  if until_ms >= FOREVER_MS then return -1 end
  return math.max(0, math.ceil(until_ms - now))
end

-- Returns the same for the pause of the whole queue. The field in BullMQ's meta is 1, or the time at which the pause
-- ends.
local function queue_pause_left(meta, now)
  local pause = redis.call('HGET', meta, 'paused')
  local until_ms = tonumber(pause or 0) or 1
  return until_ms == 1 and -1 or pause_left(until_ms, now)
end

-- Returns the paused keys, sorted by the end of their pause. The ms until that end follow each key.
local function paused_now(paused, now)
  local keys, all = {}, redis.call('ZRANGE', paused, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    local ms = pause_left(tonumber(all[at + 1]), now)
    if ms ~= 0 then keys[#keys + 1], keys[#keys + 2] = all[at], ms end
  end
  return keys
end

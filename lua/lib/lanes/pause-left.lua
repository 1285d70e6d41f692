-- Returns the rest of a pause in ms: -1 for a pause without an end, 0 if it is over.
local FOREVER_MS = 8.64e15
local function pause_left(until_ms, now)
  if until_ms >= FOREVER_MS then return -1 end
  return math.max(0, math.ceil(until_ms - now))
end

-- The same for the queue's pause. Its field in BullMQ's meta is 1, or the time at which the pause ends.
local function queue_pause_left(meta, now)
  local pause = redis.call('HGET', meta, 'paused')
  local until_ms = tonumber(pause or 0) or 1
  return until_ms == 1 and -1 or pause_left(until_ms, now)
end

-- Lists the paused keys, each followed by the ms that are left, sorted by end.
local function paused_now(paused, now)
  local keys, all = {}, redis.call('ZRANGE', paused, 0, -1, 'WITHSCORES')
  for at = 1, #all, 2 do
    local ms = pause_left(tonumber(all[at + 1]), now)
    if ms ~= 0 then keys[#keys + 1], keys[#keys + 2] = all[at], ms end
  end
  return keys
end

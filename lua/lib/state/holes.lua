-- Holes are slots that were booked and returned. The next draw takes them first. bucket.holes is the greatest
-- possible number of holes; if it is 0, a draw sends no command for them. MOST_TAKEN exists because a script cannot
-- reply with thousands of values.
local MOST_TAKEN = 1000

local function hole_name(slot_us, replica, index, name)
  return string.format('%.0f %s %d %s', slot_us, replica, index, name)
end

-- Takes the earliest holes of equal calls, and deletes holes that have passed.
local function take_holes(bucket, name, most, until_us)
  local taken = {}
  if bucket.holes == 0 then return taken end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', bucket.clock_us)
  local count = math.max(0, math.min(most, MOST_TAKEN))
  local near = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', until_us, 'LIMIT', 0, count)
  for _, member in ipairs(near) do
    local slot_us, slot_request_name = string.match(member, '^(%d+) %S+ %d+ (.*)$')
    if slot_request_name == name then
      redis.call('ZREM', KEYS[3], member)
      taken[#taken + 1] = tonumber(slot_us)
    end
  end
  bucket.holes = redis.call('ZCARD', KEYS[3])
  return taken
end

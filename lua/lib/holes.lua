-- Slots that were booked and given back; the next draw takes them first. Twin of src/core/holes.ts.
-- bucket.holes says whether there may be any, so that a draw without holes asks Redis nothing.
-- Lua cannot reply with some thousands of values at once.
local MOST_TAKEN = 1000

local function take_holes(keys, bucket, cost, most, horizon_us)
  local taken = {}
  if bucket.holes == 0 then return taken end
  redis.call('ZREMRANGEBYSCORE', keys.holes, '-inf', bucket.clock_us)
  local until_us = bucket.clock_us + horizon_us
  local count = math.min(most, MOST_TAKEN)
  local near = redis.call('ZRANGEBYSCORE', keys.holes, '-inf', until_us, 'LIMIT', 0, count)
  for _, member in ipairs(near) do
    local hole_cost, slot_us = string.match(member, '^(%d+) (%d+) ')
    if tonumber(hole_cost) == cost then
      redis.call('ZREM', keys.holes, member)
      taken[#taken + 1] = tonumber(slot_us)
    end
  end
  bucket.holes = redis.call('ZCARD', keys.holes)
  return taken
end

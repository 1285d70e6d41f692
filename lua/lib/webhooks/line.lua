-- The line of an ordered endpoint is a list of its pending messages in order, each "<purpose> <message> <user>". The
-- state of the line is a hash. `step` identifies the next attempt, and `attempt` is its number, from 1. `taken` is
-- how many messages are sent together, or 0 before the first attempt. Both Redis keys are deleted when the line is
-- empty. The entry of an expunged message stays without a name, so that a running attempt later removes the right
-- entries.

local function join_line(line, state, entries)
  if redis.call('EXISTS', line) == 0 then
    -- The step's name must be new, because the queue may still have jobs of earlier steps.
    local time = redis.call('TIME')
    local step = string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('HSET', state, 'step', step, 'attempt', 1, 'taken', 0)
  end
  redis.call('RPUSH', line, unpack(entries))
end

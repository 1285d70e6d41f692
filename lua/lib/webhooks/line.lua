-- The line of an ordered endpoint: a list of its pending messages in order, each "<purpose> <message> <user>". Its state is a
-- hash. `step` names the next attempt, and `attempt` is its number, from 1. `taken` is how many messages go together, or 0
-- before the first attempt. Both keys are deleted when the line is empty. The entry of an expunged message remains, without a name, so that a running step
-- removes the right entries.

local function join_line(line, state, entries)
  if redis.call('EXISTS', line) == 0 then
    -- The name must be new, because the queue may still have jobs of earlier steps.
    local time = redis.call('TIME')
    local step = string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('HSET', state, 'step', step, 'attempt', 1, 'taken', 0)
  end
  redis.call('RPUSH', line, unpack(entries))
end

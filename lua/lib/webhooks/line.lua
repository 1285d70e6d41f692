-- The line of an ordered endpoint: messages in the order in which they came, each "<purpose> <message> <who asked>", in a
-- list. Its state, a hash: `step`, the name of the attempt that is next; `attempt`, how often its head was tried, and one
-- more; `taken`, how many of it are tried together, 0 before the first attempt. Both are gone while nothing waits. An entry
-- whose message was expunged keeps its place, so that a step under way ends the right ones; it names no message.

local function join_line(line, state, entries)
  if redis.call('EXISTS', line) == 0 then
    -- A step comes once: the queue may know jobs of earlier ones.
    local time = redis.call('TIME')
    local step = string.format('%.0f', time[1] * 1000000 + time[2])
    redis.call('HSET', state, 'step', step, 'attempt', 1, 'taken', 0)
  end
  redis.call('RPUSH', line, unpack(entries))
end

-- Counts an operator's change of a queue. Returns nil and the current generation if another change came since the
-- `seen` one ('' accepts any). A generation is at least the time in ms, so it still grows after Redis has lost all
-- data.
local function next_generation(state, seen, now)
  local current = tonumber(redis.call('HGET', state, 'generation') or 0)
  if seen ~= '' and tonumber(seen) ~= current then return nil, current end
  local generation = math.max(current + 1, now)
  redis.call('HSET', state, 'generation', string.format('%.0f', generation))
  return generation, generation
end

-- Counts an operator's change of a queue. Returns true and the new generation. Returns nil and the current generation
-- if another change came after the `seen` generation ('' accepts any). A generation is at least the time in ms, so it
-- also grows after Redis has lost all data.
local function next_generation(state, seen, now)
  local current = tonumber(redis.call('HGET', state, 'generation') or 0)
  if seen ~= '' and tonumber(seen) ~= current then return nil, current end
  local generation = math.max(current + 1, now)
  redis.call('HSET', state, 'generation', string.format('%.0f', generation))
  return generation, generation
end

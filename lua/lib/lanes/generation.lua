-- Counts a change of a queue by hand; nil if another came since the one that was seen ("": whatever there was), and the
-- generation of now. It is the time in ms at least, so that it also grows after a Redis that has lost all.
local function next_generation(state, seen, now)
  local current = tonumber(redis.call('HGET', state, 'generation') or 0)
  if seen ~= '' and tonumber(seen) ~= current then return nil, current end
  local generation = math.max(current + 1, now)
  redis.call('HSET', state, 'generation', string.format('%.0f', generation))
  return generation, generation
end

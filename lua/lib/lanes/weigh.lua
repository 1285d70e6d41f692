-- Gives a lane another weight. A weight of 1 is not stored.
local function weigh(lanes, key, weight)
  if weight ~= 1 then
    redis.call('HSET', lanes.weights, key, weight)
    lanes.known.weights = true
  elseif has(lanes, 'weights') then
    redis.call('HDEL', lanes.weights, key)
  end
end

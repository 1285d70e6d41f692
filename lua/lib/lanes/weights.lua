local function weigh_one(lanes, text, weight)
  if weight ~= 1 then
    redis.call('HSET', lanes.weights, text, weight)
    lanes.known.weights = true
  elseif has(lanes, 'weights') then
    redis.call('HDEL', lanes.weights, text)
  end
end

-- Sets the weights of a key's lane and of its parents, in the order of the names in the key. With nil, the stored
-- weights stay. A weight of 1 is not stored.
local function weigh(lanes, key, weights)
  local text = weights and key or ''
  for at = weights and #weights or 0, 1, -1 do
    weigh_one(lanes, text, tonumber(weights[at]))
    text = parent_of(text)
  end
end

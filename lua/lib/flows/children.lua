-- Registers a job as a child of a job in this queue.
local function add_child(lanes, id, child)
  lanes.children = (lanes.children or 0) + 1
  local key, score = flow_names(lanes.jobs).children .. id, lanes.now_ms * 1000 + math.min(lanes.children, 999)
  redis.call('ZADD', key, 'NX', string.format('%.0f', score), child)
  redis.call('PERSIST', key)
  redis.call('HSET', lanes.state, 'flows', 1)
end

local function add_children(lanes, id, children)
  for _, child in ipairs(children or {}) do add_child(lanes, id, child) end
end

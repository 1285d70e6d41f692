-- Records a change of a tenant's endpoints. The version is a time, not a counter. A counter could repeat after Redis
-- loses its data, and caches would then treat old endpoints as current.
local function note_change(versions, tenant)
  local time = redis.call('TIME')
  redis.call('HSET', versions, tenant, time[1] .. '.' .. time[2])
end

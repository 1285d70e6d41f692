-- Notes a change of a tenant's endpoints. The version is a time, because a counter could repeat after Redis loses its data.
-- Caches would then take old endpoints for current ones.
local function note_change(versions, tenant)
  local time = redis.call('TIME')
  redis.call('HSET', versions, tenant, time[1] .. '.' .. time[2])
end

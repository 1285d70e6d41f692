-- Notes that the endpoints of a tenant were changed. A time comes once, also if all was forgotten meanwhile; a number would
-- begin again, and who remembers the endpoints of before would take them for those of now.
local function note_change(versions, tenant)
  local time = redis.call('TIME')
  redis.call('HSET', versions, tenant, time[1] .. '.' .. time[2])
end

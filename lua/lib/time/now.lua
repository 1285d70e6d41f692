-- Returns the server's clock in whole microseconds, which is the same for every replica. Only tests set a fixed time;
-- production passes 0.
local function now_us(pinned_us)
  if pinned_us > 0 then return pinned_us end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

-- now_us(pinned): the server's clock in whole microseconds, so that every replica agrees.
-- Only tests pin it; production passes ''.
local function now_us(pinned)
  if pinned ~= '' then return tonumber(pinned) end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

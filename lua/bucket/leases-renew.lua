--[[
  leases-renew: extends each lease, so that it ends one period from now.

  KEYS  as in leases-release
  ARGV  [1] replica  [2] numbers: as in leases-release
  Reply { number of each lease that had already expired... }
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/leases
-- @include lib/request/leases

local replica = ARGV[1]
local limits, leases, now = read_leases(ARGV[2])
if not limits then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local lost, is_lost = {}, {}
for _, limit in ipairs(limits) do
  for _, lease in ipairs(leases) do
    local name = lease_name(replica, lease)
    local end_us = tonumber(redis.call('ZSCORE', limit.keys[1], name) or 0)
    if end_us > now then
      redis.call('ZADD', limit.keys[1], now + limit.period_us, name)
      redis.call('PEXPIRE', limit.keys[1], math.ceil(limit.period_us / 1000) + 1000)
    elseif not is_lost[lease] then
      is_lost[lease] = true
      lost[#lost + 1] = lease
    end
  end
end
return lost

--[[
  leases-renew: makes leases last for another period from now. Twin of renewLeases in src/core/draw/leases.ts.

  KEYS  as in slots-draw, with the keys of the calls
  ARGV  [1] asker  [2] numbers: pinned_us, terms, keys, leases {number}
  Reply { number of each lease that was already lost... }
]]
-- @include lib/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/request/request
-- @include lib/draw/leases

local asker, next_number = ARGV[1], numbers_of(ARGV[2])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local leased, leases, now = read_leases(next_number)
if not leased then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local lost, is_lost = {}, {}
for _, limit in ipairs(leased) do
  for _, lease in ipairs(leases) do
    local name = lease_name(asker, lease)
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

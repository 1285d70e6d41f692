--[[
  limits-set: sets a tenant's own limits.

  KEYS  [1] rates  [2] changed  [3] number, all as in lib/webhooks/own-limits
  ARGV  [1] key: the key of the tenant  [2] limits: the limits as text; '' for none
  Reply nothing
]]
-- @include lib/webhooks/own-limits
local key, limits = ARGV[1], ARGV[2]
set_limits(KEYS[1], KEYS[2], KEYS[3], key, limits)

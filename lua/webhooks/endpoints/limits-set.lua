--[[
  limits-set: sets the limits that a tenant has of its own.

  KEYS  [1] rates  [2] changed  [3] number, all as in lib/webhooks/own-limits
  ARGV  [1] the key that they are of  [2] the limits as text; empty for none
  Reply nothing
]]
-- @include lib/webhooks/own-limits
local key, limits = ARGV[1], ARGV[2]
set_limits(KEYS[1], KEYS[2], KEYS[3], key, limits)

--[[
  budgets: reads the budgets of a bucket and of some of its keys, or changes those of one of them. A change is announced
  to all replicas.

  KEYS  as in slots-draw, with the requested keys
  ARGV  [1] channel: the channel that all replicas listen to  [2] message: as in bucket-steer
        [3] change: "look", "grant" or "restore"
        [4] numbers: pinned_us, terms, keys, then for a change, per changed budget: the number of its scope (0: the
            bucket), the number of its limit, and start_us of the period that the change is for (0: any). For a grant:
            amount; for a restore: spent, carried, granted
  Reply { now_us, for each budget: { scope_number, number of the limit, start_us, end_us, spent, reserved, carried,
        granted, total }... } after the change. A change for another period than the current one is left out
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/request/request

local channel, message, change, next_number = ARGV[1], ARGV[2], ARGV[3], numbers_of(ARGV[4])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local now = now_us(next_number())
local terms, keys = read_frame(next_number, '')
if not terms then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local function limits_in(number)
  return number == 0 and terms.limits or keys[number].limits
end

local scope_number, is_changed = next_number(), false
while scope_number do
  local limit, start_us = limits_in(scope_number)[next_number()], next_number()
  local rule = RULES[limit.code]
  local amounts = { next_number() }
  if change == 'restore' then amounts[2], amounts[3] = next_number(), next_number() end
  if start_us == 0 or start_us == rule.balance(limit, now)[1] then
    rule[change](limit, now, unpack(amounts))
    -- Only calls report thresholds. Those of a restored balance were reported before.
    rule.save(limit, now, change == 'grant' and 'later' or 'known')
    is_changed = true
  end
  scope_number = next_number()
end
if is_changed then redis.call('PUBLISH', channel, message) end

local reply = { now }
for number = 0, #keys do
  for index, limit in ipairs(limits_in(number)) do
    local rule = RULES[limit.code]
    if rule.is_budget then reply[#reply + 1] = { number, index, unpack(rule.balance(limit, now)) } end
  end
end
return reply

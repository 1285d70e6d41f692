--[[
  slots-return: takes back slots that no caller waits for, and the asker's place with them.
  Twin of giveBack in src/core/draw/give-back.ts.

  KEYS  as in slots-draw, with one key or none
  ARGV  [1] asker  [2] the policy's text  [3] name of the asker's turn, "" if none  [4] name of the wish
        [5] name of the asker's turn for the key, "" if none
        [6] numbers: pinned_us generation lease_order key_lease_order, terms, keys, costs, slots {us, latest first}
  Reply 1 if the bucket was known, else 0
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
-- @include lib/state/holes
-- @include lib/draw/give-back

local asker, text, turn_name, name, key_turn_name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local next_number = numbers_of(ARGV[6])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us, generation = now_us(next_number()), next_number()
local lease_order, key_lease_order = next_number(), next_number()
local terms, key = read_frame(next_number, text)
local costs = terms and read_costs(next_number, terms.limits, {})
costs = costs and read_costs(next_number, key and key.limits or {}, costs)
if not costs then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local bucket = load_bucket(KEYS[1])
if not bucket then return 0 end
advance(bucket, server_us)
-- Under another policy, these slots are no longer booked.
if bucket.text ~= text then return 1 end
bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us)
local key_scope = key and open_key(key, bucket.clock_us)

local function leave(scope, turns_key, own_turn_name, own_order)
  if own_turn_name ~= '' then redis.call('ZREM', turns_key, own_turn_name) end
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if own_order > 0 and rule.leave_place then
      rule.leave_place(limit, { asker = asker, now_us = bucket.clock_us, order = own_order })
    end
  end
end
leave(bucket.shared, KEYS[2], turn_name, lease_order)
if key then leave(key_scope, key.turns_key, key_turn_name, key_lease_order) end

if generation == bucket.generation then
  take_back(bucket, key_scope, { name = name, asker = asker, costs = costs, next_number = next_number })
end
save_bucket(KEYS[1], bucket)
if key then save_key(key.state_key, key_scope, bucket.clock_us) end
return 1

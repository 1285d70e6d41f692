--[[
  slots-return: takes back slots that no caller needs any more, and removes the replica's position in the queue.

  KEYS  as in slots-draw, with the keys of the slot request
  ARGV  [1] replica  [2] the policy's text  [3] name of the slot request
        [4] numbers: pinned_us generation, 1 if the slots reserve their cost under budgets, the replica's since_us and lease_order, terms, keys, the same for each, costs,
            slots {us, latest first}
  Reply 1 if the bucket was known, else 0
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/request/request
-- @include lib/turns/turns
-- @include lib/state/holes
-- @include lib/draw/give-back

local replica, text, name, next_number = ARGV[1], ARGV[2], ARGV[3], numbers_of(ARGV[4])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us, generation, reserves = now_us(next_number()), next_number(), next_number() == 1
local since_us, lease_order = next_number(), next_number()
local terms, keys = read_frame(next_number, text)
for _, key in ipairs(keys or {}) do key.since_us, key.lease_order = next_number(), next_number() end
local parts = terms and { { costs = read_costs(next_number, terms.limits, {}) } }
for index, key in ipairs(keys or {}) do parts[index + 1] = { costs = read_costs(next_number, key.limits, {}) } end
for index = 1, #(keys or {}) + 1 do
  if not parts or not parts[index].costs then
    return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds')
  end
end

local bucket = load_bucket(KEYS[1])
if bucket then advance(bucket, server_us) end
local slots = { name = name, replica = replica, reserves = reserves, next_number = next_number }
local is_same = bucket ~= nil and bucket.text == text
-- If the policy has changed, these slots are booked only in budgets, because they outlive the policy.
local is_booked = is_same and generation == bucket.generation
if has_budgets and not is_booked then
  for index, part in ipairs(parts) do part.scope = { limits = index == 1 and terms.limits or keys[index - 1].limits } end
  take_back_from_budgets(parts, server_us, slots)
end
if not is_same then return bucket and 1 or 0 end
bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us)

local function leave(scope, turns_key, own_since_us, own_order)
  scope.turns_key = turns_key
  if own_since_us > 0 then leave_turn(scope, replica, own_since_us, bucket.clock_us) end
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if own_order > 0 and rule.leave_position then
      rule.leave_position(limit, { asker = replica, now_us = bucket.clock_us, order = own_order })
    end
  end
end
local known = { parts[1] }
parts[1].scope = bucket.shared
leave(bucket.shared, KEYS[2], since_us, lease_order)
for index, key in ipairs(keys) do
  -- An expired key has no bookings left to undo.
  if redis.call('EXISTS', key.state_key) == 1 then
    parts[index + 1].scope = open_key(key, bucket.clock_us)
    known[#known + 1] = parts[index + 1]
    leave(key.scope, key.turns_key, key.since_us, key.lease_order)
  end
end

if is_booked then take_back(bucket, known, slots) end
save_bucket(KEYS[1], bucket)
for _, key in ipairs(keys) do
  if key.scope then save_key(key.state_key, key.scope, bucket.clock_us) end
end
return 1

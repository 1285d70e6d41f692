--[[
  costs-settle: settles the actual cost of a call. A cost above the estimate is booked now, even beyond the limit. If
  the cost is below the estimate, the unused part is returned at the time of the call's slot.

  KEYS  as in slots-draw, with the keys of the call. The keys of the shadows follow only if they have something to
        settle. For a slot that a server has granted, the last key is: note, see lib/state/slot-note
  ARGV  [1] the policy's text
        [2] numbers: pinned_us slot_us is_unused, terms, keys, the difference of the cost for each limit. If the shadows
            have something to settle, then: their {limits}, and the difference for each of them
        for a slot that a server has granted  [3] when the slot expires, as in slot-note  [4] the request, as in slot-note
  Reply 1 if the bucket has the same policy, else 0. For a slot that a server has granted: the reply of slot-note. Only
        the first settlement of such a slot books the cost
]]
-- @include lib/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/state/slot-note
-- @include lib/request/request
-- @include lib/draw/shadows

local text, next_number, until_ms, request = ARGV[1], numbers_of(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local note_key = request and KEYS[#KEYS]
if not next_number or (note_key and not until_ms) then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us, slot_us, is_unused = now_us(next_number()), next_number(), next_number() == 1
local terms, keys = read_frame(next_number, text)
if not terms then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local reply
if note_key then
  local state, left_ms, is_first = note_slot(note_key, 'settle', until_ms, 0, request, math.floor(server_us / 1000))
  reply = { state, left_ms }
  if not is_first then return reply end
end
local bucket = load_bucket(KEYS[1])
if not bucket or bucket.text ~= text then return reply or 0 end
advance(bucket, server_us)

local function settle_scope(scope)
  local at_us = math.max(bucket.clock_us, scope.last_us)
  for _, limit in ipairs(scope.limits) do
    local rule, delta = RULES[limit.code], next_number()
    -- Returning units at a time before a later slot would grant the same time twice.
    local is_under_others = is_unused and rule.does_drain and scope.last_us > slot_us
    if delta ~= 0 and rule.is_rate and not is_under_others then
      rule.commit(limit, delta > 0 and at_us or slot_us, delta, { now_us = bucket.clock_us })
    end
  end
end
bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us)
settle_scope(bucket.shared)
save_bucket(KEYS[1], bucket)
for _, key in ipairs(keys) do
  if redis.call('EXISTS', key.state_key) == 1 then
    settle_scope(open_key(key, bucket.clock_us))
    save_key(key.state_key, key.scope, bucket.clock_us)
  else
    -- An expired key has nothing left to settle.
    for _ = 1, #key.limits do next_number() end
  end
end
local shadows = read_shadows(next_number, note_key and 1) or {}
settle_shadows(shadows, slot_us, next_number, bucket.clock_us)
if #shadows > 0 then save_shadows(shadows) end
return reply or 1

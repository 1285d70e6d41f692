--[[
  costs-settle: settles the actual cost of a call. A cost above the estimate is booked now, even beyond the limit. If
  the cost is below the estimate, the unused part is returned at the time of the call's slot. If the policy has changed
  since the draw, only budgets are settled, because they outlive a change of the policy.

  KEYS  as in slots-draw, with the keys of the call. The keys of the shadows follow only if they have something to
        settle. For a slot that a server has granted, the last key is: note, see lib/state/slot-note
  ARGV  [1] the policy's text  [2] asker: who drew the slot, if the call has reserved its cost under budgets, else ''
        [3] numbers: pinned_us slot_us is_unused, terms, keys, the difference of the cost for each limit. For a call
            that has reserved: after each difference, what it reserved under this limit. If the shadows have something
            to settle, then: their {limits}, and the difference for each of them
        for a slot that a server has granted  [4] when the slot expires, as in slot-note  [5] the request, as in slot-note
  Reply { 1 if the bucket has the same policy, else 0; notes }. For a slot that a server has granted: the reply of
        slot-note, then notes. Only the first settlement of such a slot books the cost.
        notes: the thresholds of budgets that were reached, packed, as in slots-draw. Absent if there are none
]]
-- @include lib/time/now
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
-- @include lib/limits/budgets/crossed
-- @include lib/limits/budgets/settle

local text, asker, next_number, until_ms, request = ARGV[1], ARGV[2], numbers_of(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
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
local is_same = bucket ~= nil and bucket.text == text
if not is_same and not has_budgets then return reply or { 0 } end
if bucket then advance(bucket, server_us) end
local clock_us = bucket and bucket.clock_us or server_us

local settling = { next_number = next_number, asker = asker, slot_us = slot_us, is_unused = is_unused, clock_us = clock_us }
if is_same then
  bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, clock_us)
  settle_scope(bucket.shared, settling, true)
  save_bucket(KEYS[1], bucket)
else
  settle_scope({ limits = terms.limits, last_us = 0 }, settling)
  save_budgets(terms.limits, clock_us)
end
local notes = {}
add_crossed(notes, 0, terms.limits)
for number, key in ipairs(keys) do
  if is_same and redis.call('EXISTS', key.state_key) == 1 then
    settle_scope(open_key(key, clock_us), settling, true)
    save_key(key.state_key, key.scope, clock_us)
  else
    -- An expired key has nothing left to settle, except budgets.
    settle_scope({ limits = key.limits, last_us = 0 }, settling)
    save_budgets(key.limits, clock_us)
  end
  add_crossed(notes, number, key.limits)
end
if is_same then
  local shadows = read_shadows(next_number, note_key and 1) or {}
  settle_shadows(shadows, slot_us, next_number, clock_us)
  if #shadows > 0 then save_shadows(shadows) end
end
reply = reply or { is_same and 1 or 0 }
if #notes > 0 then reply[#reply + 1] = pack_numbers(notes) end
return reply

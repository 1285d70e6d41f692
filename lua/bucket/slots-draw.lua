--[[
  slots-draw: books slots for a replica's slot requests, in their order. A slot must start within the horizon. If a
  slot request gets no slot, it and all slot requests after it get a turn. A turn is the time when the replica draws
  again.

  KEYS  [1] state  string: see lib/state/pack; expires an hour after the bucket has drained
        [2] turns  string: see lib/turns/turns; expires a minute after the last turn
        [3] holes  zset: "slot_us asker index name" -> us of a returned slot; expires after an hour
        [4..] the parts of the limits; then, per key: its state, its turns, and the parts of its limits.
        If there are shadows, then: their counts, see lib/draw/shadows, and the parts of their limits
  ARGV  [1] asker  [2] the policy's text
        [3] numbers: pinned_us (0 in production) horizon_us drew_us how lease turn_us since_us lease_order.
            (how: 1 for a try; plus 2 if a lost bucket starts full.)
            Then terms, see lib/request/request, keys {limits}, extras, and the {limits} of shadows, the pool, trip_us.
            (extras: 1 for shadows; plus 2 where keys take turns; plus 4 for a pool; plus 8 if trip_us follows.)
        [4] numbers: classes {costs, costs under each shadow}, slot requests {class wanted rank how since_us
            next_since_us last_since_us, keys of the call, the widest first {number, below 0 if since_us lease_order follow}}.
            (how: 1 if bounded; plus 2 if the calls reserve their cost under budgets.)
        [5..] per slot request: its name
  Reply { numbers, new_text, notes }
        numbers, packed as doubles: now_us generation version alive source turn_us since_us lease_order closed_until_us
        closed_by spare_leases.
        Then per slot request: run_count run_at_us run_excess not_before_us binds_at soonest_us, per key: 0 (-1: the
        position is unchanged) turn_us since_us lease_order, slots {us}. If the rest is empty, only -1 not_before_us
        binds_at.
        Then for a try, per slot request and limit: remaining reset_us next_us. -1 means that the time is unknown.
        notes: about budgets, if there is something to report: see notes_of in lib/limits/budgets/spent
]]
-- @include lib/fast/plain-draw
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/request/request
-- @include lib/request/slot-requests
-- @include lib/turns/turns
-- @include lib/draw/fit
-- @include lib/draw/soonest
-- @include lib/draw/seldom
-- @include lib/draw/book
-- @include lib/draw/serve
-- @include lib/draw/draw

local asker, text, next_number = ARGV[1], ARGV[2], numbers_of(ARGV[3])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us, horizon_us, drew_us, how = now_us(next_number()), next_number(), next_number(), next_number()
local serving = {
  asker = asker, now_us = server_us, horizon_us = horizon_us, is_try = how % 2 == 1, lease = next_number(),
  drew = { at_us = drew_us, starts_full = how >= 2 }, has_granted = false, own = NO_POSITION,
  drawer = { asker = asker, now_us = 0, order = 0, lease = 0 }, bucket = nil, shares = nil,
  slot_requests = nil, alive = nil, missed_us = nil, shadows = nil, fair = nil, is_fair = false, are_others_fair = false, gate_drawer = nil,
  sharers = 1, pool = nil, trip_us = 0,
}
local own = { turn_us = next_number(), since_us = next_number(), lease_order = next_number() }
if own.since_us > 0 or own.lease_order > 0 then serving.own = own end
local terms = read_terms(next_number, text)
local keys, shadows, slot_requests = terms and read_keys(next_number, terms), nil, nil
local extras = keys and next_number() or 0
local is_fair = math.floor(extras / 2) % 2 == 1
if keys then shadows = extras % 2 == 1 and for_shadows().read_shadows(next_number, is_fair and 1 or 0) or NOTHING end
if shadows and math.floor(extras / 4) % 2 == 1 then
  serving.pool = for_pools().read_pool(next_number, terms, keys)
  if not serving.pool then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end
end
serving.trip_us = extras >= 8 and next_number() or 0
if shadows then slot_requests = read_slot_requests(ARGV[4], terms, keys, shadows, serving.is_try and 1 or 0, is_fair, serving.pool) end
if not slot_requests or horizon_us < 0 then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end
if slot_requests.too_large then
  return redis.error_reply(string.format('SLUICE_COST_TOO_LARGE %.0f %.0f', slot_requests.too_large, slot_requests.capacity))
end
serving.shadows, serving.is_fair = shadows, is_fair
if are_all_resets_off(terms, keys, shadows, server_us) then
  return redis.error_reply(string.format('SLUICE_WRONG_RESETS %.0f', server_us))
end
return draw(serving, terms, keys, slot_requests)

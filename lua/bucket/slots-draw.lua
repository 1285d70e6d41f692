--[[
  slots-draw: books slots for an asker's wishes, in their order, within the horizon. Once a wish does not
  fit, it and those behind it keep a turn at which to ask again. Twin of draw in src/core/draw/draw.ts.

  KEYS  [1] state  string: see lib/state/pack; expires an hour after the bucket has drained
        [2] turns  zset: see lib/draw/turns; expires a minute after the last turn
        [3] holes  zset: "slot_us asker index name" -> us of a slot given back; expires after an hour
        [4..] the parts of the limits; then, per key: its state, its turns, and the parts of its limits;
        and if there are shadows: what they count, see lib/draw/shadows, and the parts of their limits
  ARGV  [1] asker  [2] the policy's text  [3] name of the asker's turn, "" if none
        [4] numbers: pinned_us (0 in production) horizon_us drew_us how lease turn_us lease_order,
            (how: 1 for a try, and 2 more if a lost bucket starts full),
            then terms, see lib/request/request, keys {limits}, wishes {wanted rank is_bounded since_us next_since_us
            last_since_us, keys of the call, the widest first {key turn_us lease_order}, costs},
            and if there are shadows: those {limits}, and the costs of each wish under them
        [5..] per wish: its name, and the name of the asker's turn for each of its keys
  Reply { now_us, generation, version, alive, new_text, turn_us, turn_name, lease_order, source,
          closed_until_us, closed_by, wish..., status... }
        wish: { run_count, run_at_us, run_excess, not_before_us, binds_at, soonest_us, per key: turn_us turn_name
              lease_order, slot_us... }
        status, of a try, per wish and limit: { remaining, reset_us, next_us }; -1 is an unknown time
]]
-- @include lib/fast/plain-draw
-- @include lib/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/request/request
-- @include lib/request/wishes
-- @include lib/draw/turns
-- @include lib/state/holes
-- @include lib/draw/place
-- @include lib/draw/soonest
-- @include lib/draw/gates
-- @include lib/draw/book
-- @include lib/state/status
-- @include lib/state/lost-state
-- @include lib/draw/shadows
-- @include lib/draw/serve
-- @include lib/draw/draw

local asker, text, turn_name, next_number = ARGV[1], ARGV[2], ARGV[3], numbers_of(ARGV[4])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us, horizon_us, drew_us, how = now_us(next_number()), next_number(), next_number(), next_number()
local serving = {
  asker = asker, now_us = server_us, horizon_us = horizon_us, is_try = how % 2 == 1, lease = next_number(),
  drew = { at_us = drew_us, starts_full = how >= 2 }, used = 0, has_granted = false,
  own = { turn_us = next_number(), turn_name = turn_name, lease_order = next_number() },
}
local terms = read_terms(next_number, text)
local keys, wishes = nil, nil
if terms then keys = read_keys(next_number, terms) end
if keys then wishes = read_wishes(next_number, terms, keys, serving.is_try and 1 or 0) end
local shadows = wishes and read_shadows(next_number)
if not shadows or not read_shadow_costs(next_number, wishes, shadows) or serving.horizon_us < 0 then
  return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds')
end
if wishes.too_large then
  return redis.error_reply(string.format('SLUICE_COST_TOO_LARGE %.0f %.0f', wishes.too_large, wishes.capacity))
end
serving.shadows = shadows
if are_all_resets_off(terms, keys, shadows, serving.now_us) then
  return redis.error_reply(string.format('SLUICE_WRONG_RESETS %.0f', serving.now_us))
end
return draw(serving, terms, keys, wishes)

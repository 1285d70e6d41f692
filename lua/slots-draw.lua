--[[
  slots-draw: books up to `wanted` slots of a bucket within the horizon; an asker whose slots lie
  farther ahead keeps a turn instead, at which to ask again. Twin of src/core/draw.ts.

  KEYS  [1] state  string: see lib/bucket; expires an hour after the bucket has drained
        [2] turns  zset: asker -> us of its next turn; expires a minute after the last turn
        [3] holes  zset: "cost slot asker index" -> us of a slot given back; expires with the last
  ARGV  [1] asker  [2] wanted, calls  [3] cost of each  [4] horizon_us
        [5] count  [6] period_us  [7] burst: the newest policy that the asker knows
        [8] generation of that policy; 0 declares it anew
        [9] drew_us, when the asker drew last; 0: never  [10] turn_us that it was given; 0: none
        [11] pinned_us, '' in production
  Reply { now_us, generation, count, period_us, burst, granted, excess, turn_us, hole_us... }
]]
-- @include lib/now
-- @include lib/whole
-- @include lib/bucket
-- @include lib/policy
-- @include lib/turns
-- @include lib/holes

local keys = { state = KEYS[1], turns = KEYS[2], holes = KEYS[3] }
local asker = ARGV[1]
local wanted, cost, horizon_us = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local policy = { count = tonumber(ARGV[5]), period_us = tonumber(ARGV[6]), burst = tonumber(ARGV[7]) }
local generation, drew_us, own_turn_us = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local server_us = now_us(ARGV[11])

if not (is_whole(wanted, 1) and is_whole(cost, 1) and is_whole(horizon_us, 0)
    and is_whole(policy.count, 1) and is_whole(policy.period_us, 1) and is_whole(policy.burst, 1)
    and is_whole(generation, 0) and is_whole(drew_us, 0) and is_whole(own_turn_us, 0)) then
  return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole')
end

local bucket = load_bucket(keys.state)
if bucket then
  advance(bucket, server_us)
  settle_policy(bucket, policy, generation, server_us)
else
  bucket = new_bucket(policy, generation, server_us)
end
if cost > bucket.burst then
  return redis.error_reply(string.format('SLUICE_COST_TOO_LARGE %.0f', bucket.burst))
end
if bucket.is_reset then redis.call('DEL', keys.turns, keys.holes) end

local now = bucket.clock_us
local since_us = now - math.floor(horizon_us / 2)
local has_turn = own_turn_us >= since_us
local step = cost * bucket.period_us
local per_horizon = horizon_us * bucket.count + bucket.burst * bucket.period_us
local share = share_of(math.floor(per_horizon / step), count_alive(bucket, drew_us))
local most = math.min(wanted, share)

local recycled = take_holes(keys, bucket, cost, most, horizon_us)
local excess = bucket.level + (cost - bucket.burst) * bucket.period_us
local room = horizon_us * bucket.count - excess
local ahead = count_turns(keys.turns, bucket, since_us, has_turn and own_turn_us)
local free = (room < 0 and 0 or math.floor(room / step) + 1) - ahead * share
local granted = math.max(0, math.min(most - #recycled, free))
-- A crumb is left to those whose turn comes first: it would cost a draw, and their share its fullness.
if ahead > 0 and granted < most - #recycled then granted = 0 end
bucket.level = bucket.level + granted * step

local left, turn_us = wanted - #recycled - granted, 0
if left > 0 then
  local before = ahead
  if left < wanted and has_turn then before = count_others(keys.turns, bucket, since_us) end
  local needed = (before * share + math.min(left, share) - 1) * step
  turn_us = now + math.max(0, drain_us(bucket, excess + granted * step + needed) - horizon_us)
  keep_turn(keys.turns, bucket, asker, turn_us, since_us)
elseif has_turn then
  redis.call('ZREM', keys.turns, asker)
end
save_bucket(keys.state, bucket)

return {
  now, bucket.generation, bucket.count, bucket.period_us, bucket.burst,
  granted, excess, turn_us, unpack(recycled),
}

-- Which policy of a bucket holds: the newest that was declared. Twin of openBucket in src/core/bucket-state.ts.

-- The level under a new limit: the next slot stays where it was, and from there on the new rate holds.
local function convert_level(from, to)
  local burst_level = from.burst * from.period_us
  local backlog_us = drain_us(from, from.level - burst_level)
  local used_burst = math.min(math.min(from.level, burst_level) / from.period_us, to.burst)
  return math.ceil(used_burst * to.period_us) + backlog_us * to.count
end

-- Generation 0 declares a policy; a higher one than the bucket's tells it of a state that Redis lost.
local function settle_policy(bucket, policy, generation, server_us)
  local is_same = bucket.count == policy.count
    and bucket.period_us == policy.period_us
    and bucket.burst == policy.burst
  if generation == 0 and not is_same then
    bucket.generation = math.max(server_us, bucket.generation + 1)
  elseif generation > bucket.generation then
    bucket.generation = generation
  else
    return
  end
  if is_same then return end
  bucket.level = convert_level(bucket, policy)
  bucket.count, bucket.period_us, bucket.burst = policy.count, policy.period_us, policy.burst
  bucket.turns_until_us = 0
  bucket.holes = 0
  bucket.is_reset = true
end

-- A lost state is made anew from what the asker knows.
local function new_bucket(policy, generation, server_us)
  return {
    generation = generation > 0 and generation or server_us,
    count = policy.count, period_us = policy.period_us, burst = policy.burst,
    level = 0, clock_us = server_us, skew_us = 0,
    window_us = server_us, alive = 0, alive_before = 0,
    turns_until_us = 0, holes = 0, is_reset = true,
  }
end

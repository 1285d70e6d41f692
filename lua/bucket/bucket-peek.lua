--[[
  bucket-peek: reads the state of a bucket and of some of its keys. Changes nothing.

  KEYS  as in slots-draw, with the requested keys
  ARGV  [1] text: the policy's text  [2] numbers: pinned_us, terms, keys, and the shadow {limits} if there are any
  Reply { now_us, generation, version, text, source, alive, cool_until_us, paused_until_us, factor, whole_at_us,
              gap_us, gap_until_us, { shadow... }, { key... }, status... }

  shadow: calls, waited, refused, longest_us

  key: names, weights, since_us, rank; of those with pending calls, the next turn first

  Weights have commas between them, and are empty if all are 1. Rank 0 is for critical calls, 1 for calls within a floor.

  status: remaining, reset_us, next_us for a call of one unit; -1 means that the time is unknown. For a budget also:
  total, the amount with what is carried over and granted. For a limit that adapts, the first fields of ADAPTIVE follow,
  see lib/limits/adaptive/window.
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
-- @include lib/state/status
-- @include lib/draw/shadows
-- @include lib/turns/turns
-- @include lib/state/pending-keys

local text, next_number = ARGV[1], numbers_of(ARGV[2])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us = now_us(next_number())
local terms, keys = read_frame(next_number, text)
if not terms then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local bucket = load_bucket(KEYS[1])
if bucket then
  advance(bucket, server_us)
else
  local since = terms.version > 0 and terms.version or server_us
  bucket = {
    generation = since, version = since, source = 0, text = text, clock_us = server_us,
    window_us = server_us, alive = 0, alive_before = 0, shared = fresh_scope(terms.limits),
  }
end
-- If another policy is active, the Redis keys of its limits are unknown. The reply then omits the shared limits.
if bucket.text == text then bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us) end
local now, shared = bucket.clock_us, bucket.shared
local ones, statuses = { 1, 1, 1, 1, 1, 1, 1, 1 }, {}
if bucket.text == text then add_statuses(statuses, shared, ones, 0, now) end
local cool_us, paused_us, factor, whole_us = shared.cool_until_us, shared.paused_until_us, factor_at(shared, now), whole_at_us(shared)
local gap_us, gap_until_us = shared.gap_us, shared.gap_until_us
for _, key in ipairs(keys) do
  local scope = open_key(key, now)
  add_statuses(statuses, scope, ones, 0, now)
  cool_us, paused_us = math.max(cool_us, scope.cool_until_us), math.max(paused_us, scope.paused_until_us)
  factor, whole_us = math.min(factor, factor_at(scope, now)), math.max(whole_us, whole_at_us(scope))
  gap_us, gap_until_us = math.max(gap_us, scope.gap_us), math.max(gap_until_us, scope.gap_until_us)
end
local counts = {}
for _, shadow in ipairs(read_shadows(next_number) or {}) do
  for _, name in ipairs({ 'calls', 'waited', 'refused', 'longest_us' }) do counts[#counts + 1] = shadow[name] end
end
shared.turns_key = KEYS[2]
local is_recent = now - bucket.window_us < 2000000
return {
  now, bucket.generation, bucket.version, bucket.text, bucket.source,
  is_recent and math.max(bucket.alive, bucket.alive_before) or 0,
  cool_us, paused_us, factor, whole_us, gap_us, gap_until_us, counts, pending_keys(shared, now), unpack(statuses),
}

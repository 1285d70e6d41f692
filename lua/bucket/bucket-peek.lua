--[[
  bucket-peek: how a bucket is now, or one key of it; changes nothing. Twin of peek in src/core/draw/steer.ts.

  KEYS  as in slots-draw, with one key or none
  ARGV  [1] the policy's text  [2] numbers: pinned_us, terms, keys
  Reply { now_us, generation, version, text, is_override, alive, cool_until_us, paused_until_us, factor, whole_at_us,
        gap_us, gap_until_us, status... }
        status: { remaining, reset_us, next_us } for one unit; -1 is an unknown time
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
-- @include lib/state/status

local text, next_number = ARGV[1], numbers_of(ARGV[2])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us = now_us(next_number())
local terms, key = read_frame(next_number, text)
if not terms then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local bucket = load_bucket(KEYS[1])
if bucket then
  advance(bucket, server_us)
else
  local since = terms.version > 0 and terms.version or server_us
  bucket = {
    generation = since, version = since, is_override = false, text = text, clock_us = server_us,
    window_us = server_us, alive = 0, alive_before = 0, shared = fresh_scope(terms.limits),
  }
end
-- Under another policy, the Redis keys of the parts of its limits are unknown.
if bucket.text == text then bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us) end
local scope = key and open_key(key, bucket.clock_us) or bucket.shared
local now = bucket.clock_us
local ones, statuses = { 1, 1, 1, 1, 1, 1, 1, 1 }, {}
if bucket.text == text then add_statuses(statuses, bucket.shared, ones, now) end
if key then add_statuses(statuses, scope, ones, now) end
local is_recent = now - bucket.window_us < 2000000
return {
  now, bucket.generation, bucket.version, bucket.text, bucket.is_override and 1 or 0,
  is_recent and math.max(bucket.alive, bucket.alive_before) or 0,
  math.max(bucket.shared.cool_until_us, scope.cool_until_us),
  math.max(bucket.shared.paused_until_us, scope.paused_until_us),
  math.min(factor_at(bucket.shared, now), factor_at(scope, now)),
  math.max(whole_at_us(bucket.shared), whole_at_us(scope)), math.max(bucket.shared.gap_us, scope.gap_us),
  math.max(bucket.shared.gap_until_us, scope.gap_until_us), unpack(statuses),
}

--[[
  buckets-look: reads the reports, rules and overrides of some buckets, and the buckets' state without their limits.
  Changes nothing.

  KEYS  [1] the beginning of all keys of the fleet
        [2…] state and outage note of each bucket, unless they are stored on other nodes
  ARGV  [1…] buckets: their names
  Reply { now_us, then for each bucket { reports, overrides, declared, rules, pause, fate, away_ms, state, has_calls, refusals } }
        The lists `reports` and `overrides` have names and records. The log's entry of the change is `pause`.
        The state is { now_us, generation, text, source, alive, cool_until_us, paused_until_us, factor }, or empty.
]]
-- @include lib/time/now
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket

local base, server_us = KEYS[1], now_us(0)

local function state_of(key)
  local bucket = key and load_bucket(key)
  if not bucket then return {} end
  advance(bucket, server_us)
  local now, shared = bucket.clock_us, bucket.shared
  local is_recent = now - bucket.window_us < 2000000
  return {
    now, bucket.generation, bucket.text, bucket.source,
    is_recent and math.max(bucket.alive, bucket.alive_before) or 0,
    shared.cool_until_us, shared.paused_until_us, factor_at(shared, now),
  }
end

local reply = { server_us }
for at, name in ipairs(ARGV) do
  local state_key, away_key = KEYS[at * 2], KEYS[at * 2 + 1]
  local paused = redis.call('HGET', base .. ':pauses', name)
  local id = paused and string.match(paused, '^[^|]*|(.+)$')
  reply[at + 1] = {
    redis.call('HGETALL', base .. ':reports:' .. name),
    redis.call('HGETALL', base .. ':overrides:' .. name),
    redis.call('HGET', base .. ':declared', name),
    redis.call('HGET', base .. ':rules:texts', name),
    id and redis.call('XRANGE', base .. ':changes', id, id) or {},
    id and redis.call('GET', base .. ':fate:' .. id) or false,
    away_key and redis.call('PTTL', away_key) or -2,
    state_of(state_key),
    redis.call('ZSCORE', base .. ':seen', name) and 1 or 0,
    redis.call('HGET', base .. ':refusals', name),
  }
end
return reply

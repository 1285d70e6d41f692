--[[
  bucket-steer: changes a bucket, or one key of it, and announces the change to all replicas.

  KEYS  as in slots-draw, with one key or none
  ARGV  [1] text: the policy's text  [2] channel: the channel that all replicas listen to
        [3] message: the bucket's name, and after a newline the key's
        [4] change: "configure", "pause", "space", "cool" or "cut"
        [5] numbers: pinned_us, terms, keys, the generation that the caller expects the bucket to have (0 for any), then
            the numbers of the change
  Reply { generation, 0 } after a change, or { generation, 1 } if the bucket has another generation than expected. In
        that case, nothing was changed
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/state/changes
-- @include lib/request/request
-- @include lib/draw/steer

local text, channel, message, change, next_number = ARGV[1], ARGV[2], ARGV[3], ARGV[4], numbers_of(ARGV[5])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local server_us = now_us(next_number())
local terms, keys = read_frame(next_number, text)
if not terms then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end
local key = keys[1]

local expected = next_number()
local found = load_bucket(KEYS[1])
if found and expected ~= 0 and found.generation ~= expected then return { found.generation, 1 } end

local bucket = found or new_bucket(terms, server_us)
advance(bucket, server_us)
local has_changed = true
if change == 'configure' then
  has_changed = configure(bucket, terms, math.max(server_us, bucket.version + 1), next_number(), next_number() == 1)
else
  local scope = key and open_key(key, bucket.clock_us) or bucket.shared
  has_changed = CHANGES[change](scope, bucket.clock_us, next_number)
  if key then
    save_key(key.state_key, scope, bucket.clock_us)
  elseif has_changed then
    bucket.generation = math.max(bucket.generation + 1, bucket.clock_us)
    clear_positions(bucket)
  end
end
save_bucket(KEYS[1], bucket)
if has_changed then redis.call('PUBLISH', channel, message) end
return { bucket.generation, 0 }

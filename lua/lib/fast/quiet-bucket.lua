-- A macro over the locals of slots-try and scopes-try: reads a bucket that has no limits and nothing unusual.
-- It reads text (the policy's) and numbers, which begin with pinned_us, drew_us and the policy's version. It declares
-- packed, generation, own_version, source, alive, alive_before, server_us, and the bucket's time (now).
local packed = redis.call('GET', KEYS[1])
-- The stored bucket must have 22 doubles: ten of the bucket, eleven of its scope (without limits), and one more. See
-- lib/state/pack.
if not packed or struct.unpack('<d', packed) ~= 22 or string.sub(packed, 177) ~= text then return '' end
local _, generation, own_version, source, clock_us, skew_us, _, alive, alive_before, _, shared_last_us =
  struct.unpack('<ddddddddddd', packed)
local server_us = now_us(numbers[1])
local now = math.max(server_us + skew_us, clock_us)
if numbers[3] > own_version or numbers[2] > clock_us or shared_last_us > now
  or not is_quiet(string.sub(packed, 89, 160), now) then
  return ''
end

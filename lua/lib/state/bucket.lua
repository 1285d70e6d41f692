-- Advances a bucket's clock, and detects that Redis has lost a bucket's state.

-- Advances the bucket's clock. If the server's clock steps back, the bucket still continues, and books no time twice.
local function advance(bucket, server_us)
  local clock_us = math.max(server_us + bucket.skew_us, bucket.clock_us)
  bucket.skew_us = clock_us - server_us
  bucket.clock_us = clock_us
end

-- Redis keeps a bucket for at least this long after a draw.
local KEPT_US = 3600000000

-- True if the asking replica knows of a draw or a policy that is missing in the bucket.
local function is_state_lost(bucket, terms, server_us, drew)
  if drew.at_us == 0 or drew.starts_full then return false end
  -- After KEPT_US without a draw, a missing bucket has only expired, and its limits had drained long before.
  if not bucket then return server_us < drew.at_us + KEPT_US end
  return drew.at_us > bucket.clock_us or terms.version > bucket.version
end

-- Creates buckets, and changes the policy of a bucket.

-- Removes all turns and holes, because those of an older generation are invalid.
local function clear_positions(bucket)
  bucket.shared.turns_until_us = 0
  bucket.holes = 0
  redis.call('DEL', KEYS[2], KEYS[3])
end

-- Returns a new bucket with the policy of the asking replica.
local function new_bucket(terms, server_us)
  local since = terms.version > 0 and terms.version or server_us
  local bucket = {
    generation = since, version = since, source = 0, text = terms.text,
    clock_us = server_us, skew_us = 0, window_us = server_us, alive = 0, alive_before = 0, holes = 0, tried_us = 0,
    shared = fresh_scope(terms.limits), has_changed = true,
  }
  clear_positions(bucket)
  return bucket
end

-- Makes a policy active. Bookings stay under limits of the same kind. Slots that replicas already hold become
-- invalid.
local function put_in_force(bucket, terms, version)
  bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us)
  bucket.text = terms.text
  bucket.version, bucket.has_changed = version, true
  bucket.generation = math.max(version, bucket.generation + 1)
  clear_positions(bucket)
end

-- Makes the newest declared policy active, unless an operator or rules have replaced the declared policy. Returns
-- false if the active policy is not that of the replica.
local function settle_terms(bucket, terms, server_us)
  local is_same = bucket.text == terms.text
  if terms.version == 0 and not is_same and bucket.source == 0 then
    put_in_force(bucket, terms, math.max(server_us, bucket.version + 1))
  elseif terms.version > bucket.version and is_same then
    bucket.version, bucket.has_changed = terms.version, true
  elseif terms.version > bucket.version then
    put_in_force(bucket, terms, terms.version)
  end
  return bucket.text == terms.text
end

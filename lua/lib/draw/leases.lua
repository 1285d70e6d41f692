-- The request of both scripts about leases: the limits that have leases, with the number of their key or 0, the leases' numbers, and the bucket's time; nil if
-- a number can never work. The asker's own limits say where its leases are, whatever policy is in force now.
-- Twin of readLeases in src/core/draw/leases.ts.
local function read_leases(next_number)
  local server_us = now_us(next_number())
  local terms, keys = read_frame(next_number, '')
  if not terms then return nil end
  local leases, leased = {}, {}
  for index = 1, next_number() do leases[index] = next_number() end
  local scopes = { terms.limits }
  for index, key in ipairs(keys) do scopes[index + 1] = key.limits end
  for index, limits in ipairs(scopes) do
    for _, limit in ipairs(limits) do
      limit.key_index = index - 1
      if RULES[limit.code].keep_place then leased[#leased + 1] = limit end
    end
  end
  local bucket = load_bucket(KEYS[1])
  if bucket then advance(bucket, server_us) end
  return leased, leases, bucket and bucket.clock_us or server_us
end

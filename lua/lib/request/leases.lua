-- Reads the request of leases-release and leases-renew.

-- Returns the limits, each with its Redis keys, the numbers of the leases, the bucket's time, and a function that returns
-- the rest of the request. Returns nil if a number is invalid.
local function read_leases(packed)
  local next_number = numbers_of(packed)
  if not next_number then return nil end
  local server_us, limits, leases, used = now_us(next_number()), {}, {}, 1
  for index = 1, next_number() do
    local count, period_us, parts = next_number(), next_number() or 0, next_number() or 0
    if not count or count < 0 or period_us < 1 or parts < 2 then return nil end
    limits[index] = { count = count, period_us = period_us, keys = { unpack(KEYS, used + 1, used + parts) } }
    used = used + parts
  end
  for index = 1, next_number() or 0 do leases[index] = next_number() end
  -- Reads the bucket's clock from the beginning of its state: see lib/state/load-and-save.
  local head = redis.call('GETRANGE', KEYS[1], 0, 47)
  if #head < 48 then return limits, leases, server_us, next_number end
  local _, _, _, _, clock_us, skew_us = struct.unpack('<dddddd', head)
  return limits, leases, math.max(server_us + skew_us, clock_us), next_number
end

-- The request of both scripts about leases.

-- The limits, each with its keys, and the leases' numbers; nil if a number can never work.
local function read_leases(packed)
  local next_number = numbers_of(packed)
  if not next_number then return nil end
  local server_us, limits, leases = now_us(next_number()), {}, {}
  for index = 1, next_number() do
    local count, period_us = next_number(), next_number() or 0
    if not count or count < 0 or period_us < 1 then return nil end
    limits[index] = { count = count, period_us = period_us, keys = { KEYS[2 * index], KEYS[2 * index + 1] } }
  end
  for index = 1, next_number() or 0 do leases[index] = next_number() end
  -- The bucket's clock, by the head of its state: see lib/state/load-and-save.
  local head = redis.call('GETRANGE', KEYS[1], 0, 47)
  if #head < 48 then return limits, leases, server_us end
  local _, _, _, _, clock_us, skew_us = struct.unpack('<dddddd', head)
  return limits, leases, math.max(server_us + skew_us, clock_us)
end

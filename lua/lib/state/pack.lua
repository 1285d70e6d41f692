-- Converts a scope to and from its format in Redis: whole numbers, packed as doubles. A hash would take twice as long
-- in each draw.
local SCOPE_HEAD, PER_LIMIT = 11, 7

local function unpack_limits(numbers, at, limit_count)
  local limits = {}
  for index = 1, limit_count do
    limits[index] = {
      code = numbers[at], count = numbers[at + 1], period_us = numbers[at + 2], capacity = numbers[at + 3],
      a = numbers[at + 4], b = numbers[at + 5], c = numbers[at + 6],
    }
    at = at + PER_LIMIT
  end
  return limits, at
end

-- Packs the limits between a first and a last part. Uses a single concatenation, because Lua hashes every string that
-- it creates.
local function pack_limits(before, limits, after)
  local packed = { before }
  for index, limit in ipairs(limits) do
    packed[index + 1] = struct.pack('<ddddddd', limit.code, limit.count, limit.period_us, limit.capacity, limit.a, limit.b, limit.c)
  end
  packed[#packed + 1] = after
  return table.concat(packed)
end

local function unpack_scope(numbers, at)
  local limits, after = unpack_limits(numbers, at + SCOPE_HEAD, numbers[at + SCOPE_HEAD - 1])
  return {
    last_us = numbers[at], cool_until_us = numbers[at + 1], paused_until_us = numbers[at + 2],
    cut_us = numbers[at + 3], factor = numbers[at + 4], since_us = numbers[at + 5],
    recover_us = numbers[at + 6], gap_us = numbers[at + 7], gap_until_us = numbers[at + 8],
    turns_until_us = numbers[at + 9], limits = limits,
  }, after
end

local function pack_scope(scope)
  local head = struct.pack('<ddddddddddd', scope.last_us, scope.cool_until_us, scope.paused_until_us,
    scope.cut_us, scope.factor, scope.since_us, scope.recover_us, scope.gap_us, scope.gap_until_us,
    scope.turns_until_us, #scope.limits)
  return pack_limits(head, scope.limits)
end

-- A key without pauses or cooldowns has a short format: the number of its limits, the limits, and its last slot. This
-- halves the bytes, which matters because Lua reads each byte of every string that it gets or creates.
local function unpack_key(packed)
  local count = #packed / 8
  if count == 9 then
    local _, code, limit_count, period_us, capacity, a, b, c, last_us = struct.unpack('<ddddddddd', packed)
    local scope = fresh_scope({
      { code = code, count = limit_count, period_us = period_us, capacity = capacity, a = a, b = b, c = c },
    })
    scope.last_us = last_us
    return scope
  end
  local numbers = { struct.unpack('<' .. string.rep('d', count), packed) }
  if (count - 2) % PER_LIMIT > 0 then return unpack_scope(numbers, 1) end
  local scope = fresh_scope(unpack_limits(numbers, 2, numbers[1]))
  scope.last_us = numbers[count]
  return scope
end

local function pack_key(scope)
  local is_usual = scope.turns_until_us == 0 and scope.cool_until_us == 0
    and scope.paused_until_us == 0 and scope.cut_us == 0 and scope.factor == 1000 and scope.since_us == 0
    and scope.recover_us == 0 and scope.gap_us == 0 and scope.gap_until_us == 0
  if not is_usual then return pack_scope(scope) end
  local limit = scope.limits[1]
  if limit and not scope.limits[2] then
    return struct.pack('<ddddddddd', 1, limit.code, limit.count, limit.period_us, limit.capacity, limit.a, limit.b,
      limit.c, scope.last_us)
  end
  return pack_limits(struct.pack('<d', #scope.limits), scope.limits, struct.pack('<d', scope.last_us))
end

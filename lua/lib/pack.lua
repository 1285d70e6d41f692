-- How a scope is kept: whole numbers, packed as doubles, since a hash would cost twice as much a draw.
local SCOPE_HEAD, PER_LIMIT = 12, 7

local function unpack_scope(numbers, at)
  local scope = {
    last_us = numbers[at], cool_until_us = numbers[at + 1], paused_until_us = numbers[at + 2],
    cut_us = numbers[at + 3], factor = numbers[at + 4], since_us = numbers[at + 5],
    recover_us = numbers[at + 6], gap_us = numbers[at + 7], gap_until_us = numbers[at + 8],
    turns_until_us = numbers[at + 9], uneven_until_us = numbers[at + 10], limits = {},
  }
  at = at + SCOPE_HEAD
  for index = 1, numbers[at - 1] do
    scope.limits[index] = {
      code = numbers[at], count = numbers[at + 1], period_us = numbers[at + 2], capacity = numbers[at + 3],
      a = numbers[at + 4], b = numbers[at + 5], c = numbers[at + 6],
    }
    at = at + PER_LIMIT
  end
  return scope, at
end

local function pack_scope(scope)
  local packed = struct.pack('<dddddddddddd', scope.last_us, scope.cool_until_us, scope.paused_until_us,
    scope.cut_us, scope.factor, scope.since_us, scope.recover_us, scope.gap_us, scope.gap_until_us,
    scope.turns_until_us, scope.uneven_until_us, #scope.limits)
  for _, l in ipairs(scope.limits) do
    packed = packed .. struct.pack('<ddddddd', l.code, l.count, l.period_us, l.capacity, l.a, l.b, l.c)
  end
  return packed
end

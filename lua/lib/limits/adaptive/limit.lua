-- A concurrency limit that is computed from latencies. lib/limits/adaptive/window computes it when calls end.
-- keys[1], keys[2]: as in lib/limits/leases
-- keys[3] string: the state, as in lib/limits/adaptive/window. Its first double is the number of calls that may run at
--         once, and a draw reads no more than that. Expires an hour after the last call ended.
MAKERS[8] = function()
  local rule = MAKERS[6]()
  local earliest = rule.earliest

  rule.parts = 3
  rule.read = function(limit, next_number)
    limit.terms = {
      min = next_number(), initial = next_number(), tolerance = next_number() / 1000, is_shadow = next_number() == 1,
    }
  end
  -- Returns how many calls may run at once.
  rule.bound_of = function(limit)
    if limit.bound then return limit.bound end
    local terms, bound = limit.terms, limit.count
    if not terms.is_shadow then
      local packed = redis.call('GETRANGE', limit.keys[3], 0, 7)
      bound = math.min(bound, math.max(terms.min, #packed == 8 and struct.unpack('<d', packed) or terms.initial))
    end
    limit.bound = bound
    return bound
  end
  rule.earliest = function(limit, at_us, cost, drawer)
    rule.bound_of(limit)
    return earliest(limit, at_us, cost, drawer)
  end
  -- Adds the first fields of the state to the status of the limit, if it has a state.
  rule.add_state = function(limit, status)
    local packed = redis.call('GETRANGE', limit.keys[3], 0, 55)
    if #packed < 56 then return end
    for index, number in ipairs({ struct.unpack('<ddddddd', packed) }) do
      if index <= 7 then status[#status + 1] = number end
    end
    status[4] = rule.bound_of(limit)
  end
  return rule
end

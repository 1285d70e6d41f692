-- a: the tokens that are missing from a full bucket, in tokens x period; b: the us at which `a` was measured;
-- c: us since which the bucket has not been full.
MAKERS[2] = function()
  local function lacking_at(limit, when_us)
    -- The elapsed time is negative after a later booking was returned: then the refill until that time is still
    -- missing.
    local elapsed_us = when_us - limit.b
    if elapsed_us >= limit.a / limit.count then return 0 end
    return limit.a - limit.count * elapsed_us
  end

  return {
    is_rate = true,
    does_drain = true,
    earliest = function(limit, at_us, cost)
      local debt = lacking_at(limit, at_us) + (cost - limit.capacity) * limit.period_us
      return debt > 0 and at_us + math.ceil(debt / limit.count) or at_us
    end,
    commit = function(limit, at_us, cost)
      if cost < 0 and at_us < limit.c then return end
      local lacking = limit.a
      if at_us > limit.b then
        lacking = lacking_at(limit, at_us)
        if lacking == 0 then limit.c = at_us end
        limit.b = at_us
      end
      limit.a = math.max(0, lacking + cost * limit.period_us)
    end,
    adapt = function(from, to, now_us)
      local at_us = math.max(now_us, from.b)
      local spent = lacking_at(from, at_us) / from.period_us
      to.a, to.b = math.ceil(math.min(spent, to.capacity) * to.period_us), at_us
    end,
  }
end

-- a: us at which the bucket will have drained; b: the remaining fraction of a us, in 1/count us; c: us since which
-- the bucket has not been empty.
MAKERS[1] = function()
  local function level_at(limit, at_us)
    if limit.a < at_us then return 0 end
    return (limit.a - at_us) * limit.count + limit.b
  end

  local function excess_at(limit, at_us, cost)
    return level_at(limit, at_us) + (cost - limit.capacity) * limit.period_us
  end

  return {
    is_rate = true,
    does_drain = true,
    excess = excess_at,
    -- Repeats the arithmetic of excess_at, because a function call in Lua takes as long as this arithmetic.
    earliest = function(limit, at_us, cost)
      local excess, count = (cost - limit.capacity) * limit.period_us, limit.count
      if limit.a >= at_us then excess = excess + (limit.a - at_us) * count + limit.b end
      return excess > 0 and at_us + math.ceil(excess / count) or at_us
    end,
    commit = function(limit, at_us, cost)
      if cost < 0 and at_us < limit.c then return end
      if cost > 0 and at_us - limit.a > (limit.b > 0 and 1 or 0) then limit.a, limit.b, limit.c = at_us, 0, at_us end
      local rest = limit.b + cost * limit.period_us
      local whole_us = math.floor(rest / limit.count)
      limit.a, limit.b = limit.a + whole_us, rest - whole_us * limit.count
    end,
    adapt = function(from, to, now_us)
      local level = level_at(from, now_us)
      local burst_level = from.capacity * from.period_us
      local backlog_us = math.ceil(math.max(0, level - burst_level) / from.count)
      local used_burst = math.min(math.min(level, burst_level) / from.period_us, to.capacity)
      local new_level = math.ceil(used_burst * to.period_us)
      local whole_us = math.floor(new_level / to.count)
      to.a, to.b = now_us + backlog_us + whole_us, new_level - whole_us * to.count
    end,
  }
end

-- a: us at which the newest window began; b: the units used in that window;
-- c: the units used in the window before.
MAKERS[4] = function()
  local function rolled(limit, at_us)
    local start_us = math.floor(at_us / limit.period_us) * limit.period_us
    if start_us <= limit.a then return limit.a, limit.b, limit.c end
    return start_us, 0, start_us == limit.a + limit.period_us and limit.b or 0
  end

  -- Returns how far into a window the weighted use of the previous window fits into the room; one period if it never
  -- fits.
  local function fits(period_us, used_before, room)
    if room < 0 then return period_us end
    if used_before <= room then return 0 end
    return math.ceil(period_us - (room * period_us) / used_before)
  end

  return {
    is_rate = true,
    earliest = function(limit, at_us, cost)
      local start_us, used, used_before = rolled(limit, at_us)
      local here = fits(limit.period_us, used_before, limit.capacity - used - cost)
      if here < limit.period_us then return math.max(at_us, start_us + here) end
      return math.max(at_us, start_us + limit.period_us + fits(limit.period_us, used, limit.capacity - cost))
    end,
    commit = function(limit, at_us, cost)
      if cost < 0 and at_us < limit.a then
        if at_us >= limit.a - limit.period_us then limit.c = math.max(0, limit.c + cost) end
        return
      end
      limit.a, limit.b, limit.c = rolled(limit, at_us)
      limit.b = math.max(0, limit.b + cost)
    end,
    -- The counters do not record when units were used within a window. So after a change of the window length, all
    -- units count as used now.
    adapt = function(from, to, now_us)
      if from.period_us == to.period_us then return end
      local _, used, used_before = rolled(from, now_us)
      to.a = math.floor(now_us / to.period_us) * to.period_us
      to.b, to.c = math.min(used + used_before, to.capacity), 0
    end,
  }
end

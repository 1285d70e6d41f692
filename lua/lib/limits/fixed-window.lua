-- a: us at which the newest window began; b: the units used in that window.
MAKERS[5] = function()
  -- Returns the start and the end of the window that contains a time. For calendar windows, the replica computes
  -- `resets`, the starts of the windows around now.
  local function window_at(limit, at_us)
    if not limit.resets then
      local start_us = math.floor(at_us / limit.period_us) * limit.period_us
      return start_us, start_us + limit.period_us
    end
    for index, reset_us in ipairs(limit.resets) do
      if reset_us > at_us then
        return index > 1 and limit.resets[index - 1] or reset_us - limit.period_us, reset_us
      end
    end
    local start_us = limit.resets[#limit.resets]
    return start_us, start_us + limit.period_us
  end

  return {
    is_rate = true,
    earliest = function(limit, at_us, cost)
      -- After units were returned, the newest window may lie in the future. No call may start before that window
      -- begins.
      local from_us = math.max(at_us, limit.a)
      local start_us, end_us = window_at(limit, from_us)
      local used = start_us > limit.a and 0 or limit.b
      return used + cost <= limit.capacity and from_us or end_us
    end,
    commit = function(limit, at_us, cost)
      local start_us = window_at(limit, cost > 0 and math.max(at_us, limit.a) or at_us)
      if start_us < limit.a then return end
      local used = start_us > limit.a and 0 or limit.b
      limit.a, limit.b = start_us, math.max(0, used + cost)
    end,
    adapt = function(from, to, now_us)
      if now_us >= from.a + from.period_us then to.b = 0 end
      to.a = window_at(to, now_us)
    end,
  }
end

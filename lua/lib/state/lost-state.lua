-- Handles a bucket after Redis has lost its state, including the calls that it let start.
-- @include lib/state/status

-- After a loss, windows of up to SHORT_US count as used up. Longer windows start empty, because a used-up window
-- could block calls for a day.
local SHORT_US = 60000000

-- Books as much as the limits would allow at once, as if a burst had just started.
local function use_up(scope, now_us)
  local at_us = math.max(now_us, scope.last_us)
  local drawer = { asker = '', now_us = now_us, order = 0, lease = 0 }
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if rule.is_rate and (rule.does_drain or limit.period_us <= SHORT_US) then
      local spare = remaining_of(limit, at_us, drawer)
      if spare > 0 then rule.commit(limit, at_us, spare, drawer) end
    end
  end
end

-- Settles the limits of one scope. The differences, and what was reserved, are the next numbers of the request. Budgets
-- are settled even if the state of the scope has expired.
local function settle_scope(scope, settling, is_stored)
  local at_us, slot_us = math.max(settling.clock_us, scope.last_us), settling.slot_us
  for _, limit in ipairs(scope.limits) do
    local rule, delta = RULES[limit.code], settling.next_number()
    local reserved = settling.asker ~= '' and settling.next_number() or 0
    -- Returning units at a time before a later slot would grant the same time twice.
    local is_under_others = settling.is_unused and rule.does_drain and scope.last_us > slot_us
    if rule.is_budget then
      if delta ~= 0 or reserved > 0 then rule.settle(limit, slot_us, at_us, delta, reserved, settling.asker) end
    elseif is_stored and delta ~= 0 and rule.is_rate and not is_under_others then
      rule.commit(limit, delta > 0 and at_us or slot_us, delta, { now_us = settling.clock_us })
    end
  end
end

-- Sets aside the calls that do not fit into a budget, and collects what a draw reports about budgets.

-- Returns the result of a slot request whose calls do not fit into a budget within the horizon; nil if they fit. Such
-- calls keep no position, so they delay no other call. The budget that has room last decides.
local function spent_by(serving, slot_request, open_scope)
  local now_us, costs, after, spent = serving.now_us, slot_request.class.costs, 0, nil
  local function look(scope)
    for index, limit in ipairs(scope.limits) do
      local rule, cost = RULES[limit.code], costs[after + index]
      local fits_us = rule.is_budget and cost > 0 and rule.earliest(limit, now_us, cost, serving.drawer) or now_us
      if fits_us > now_us + serving.horizon_us and fits_us > (spent and spent.soonest_us or 0) then
        spent = {
          slots = NOTHING, count = 0, run_count = 0, run_at_us = 0, run_excess = 0, not_before_us = fits_us,
          binds_at = after + index, soonest_us = fits_us, limit = limit, balance = nil,
        }
      end
    end
    after = after + #scope.limits
  end
  look(serving.bucket.shared)
  for _, key in ipairs(slot_request.keys) do look(open_scope(key, now_us)) end
  -- Later slot requests of this draw may still spend some of it.
  if spent then spent.balance = RULES[spent.limit.code].balance(spent.limit, now_us) end
  return spent
end

-- @include lib/limits/budgets/crossed

-- Returns what a reply reports about budgets, packed: the number of slot requests that a spent budget delays, and for
-- each the number of the slot request, spent, total and reset_us. Then the thresholds that were reached. Nil if there is nothing.
local function notes_of(serving, served, keys)
  local numbers = { 0 }
  for index, granted in ipairs(served) do
    if granted.limit then
      local balance = granted.balance
      numbers[1] = numbers[1] + 1
      local reset_us = granted.limit.terms.day_count > 0 and granted.soonest_us or balance[2]
      for _, number in ipairs({ index, balance[3], balance[7], reset_us }) do numbers[#numbers + 1] = number end
    end
  end
  add_crossed(numbers, 0, serving.bucket.shared.limits)
  for number, key in ipairs(keys) do
    if key.scope then add_crossed(numbers, number, key.scope.limits) end
  end
  return #numbers > 1 and pack_numbers(numbers) or nil
end

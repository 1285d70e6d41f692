-- Books slots for one slot request in one of three ways: as a run, all at one moment, or one by one. A run books many
-- calls at once under a single limit that drains evenly, because booking each slot separately is too slow at
-- 100,000/s.
local function is_runnable(serving, main, gates)
  local limits = main.scope.limits
  if #gates > 0 or #limits ~= 1 or main.costs[1] == 0 or not RULES[limits[1].code].excess then return false end
  local at_us = main_opens_us(serving, main)
  return not keeps_gap(main.scope, at_us) and not keeps_gap(serving.bucket.shared, at_us)
end

local function book_run(serving, slot_request, main, most, until_us, granted)
  local scope, limit, cost = main.scope, main.scope.limits[1], main.costs[1]
  local rule, at_us = RULES[limit.code], main_opens_us(serving, main)
  local excess, step = rule.excess(limit, at_us, cost), cost * limit.period_us
  local room = (until_us - at_us) * limit.count - excess
  local fit = (until_us < at_us or room < 0) and 0 or math.floor(room / step) + 1
  for _, before in ipairs(main.ahead) do
    local deadline_us = math.max(until_us, before.start_us + after_us(limit, before.after and before.after[1] or 0))
    local left = (deadline_us - at_us) * limit.count - rule.excess(limit, at_us, before.sums[1])
    fit = math.min(fit, math.max(0, math.floor(left / step)))
  end
  if main.fair then fit = for_fair().most_in_turn(main.fair, main, fit) end
  local count = is_too_little(serving, slot_request, main, at_us, until_us, most) and 0 or math.min(most, fit)
  if count <= 0 then return end
  if main.fair then for_fair().use_slack(main.fair, main, count) end
  rule.commit(limit, at_us + math.ceil(math.max(0, excess) / limit.count), count * cost, main.drawer)
  scope.last_us = math.max(scope.last_us, at_us + math.ceil(math.max(0, excess + (count - 1) * step) / limit.count))
  granted.run_count, granted.run_at_us, granted.run_excess = count, at_us, excess
end

-- True if no call of this slot request needs a lease.
local function has_no_leases(main, gates)
  if not are_all_rates(main.scope) then return false end
  for index = 1, #gates do
    if not are_all_rates(gates[index].scope) then return false end
  end
  return true
end

-- True if all calls start at one moment. A try takes what is free now, so n calls count as one call of n times the
-- cost. Without limits, all calls may start together, unless responses require a gap.
local function is_at_once(serving, main, gates)
  if #main.scope.limits == 0 then
    return #gates == 0 and not keeps_gap(main.scope, main_opens_us(serving, main))
  end
  return serving.is_try and has_no_leases(main, gates)
end

-- Books slots one by one. Returns the gate that delays the next call, if a gate delays it.
local function book_list(serving, slot_request, main, gates, most, until_us, granted)
  local scope, costs, drawer, slots = main.scope, main.costs, serving.drawer, granted.slots
  local opens_us = main_opens_us(serving, main)
  local at_us = earliest_for_all_us(scope, opens_us, costs, 0, drawer)
  local first_us, is_free, count = at_us, #main.ahead == 0 and not main.fair, 0
  if at_us > until_us or is_too_little(serving, slot_request, main, opens_us, until_us, most) then return nil end
  if most > MOST_LISTED then most = MOST_LISTED end
  if slot_request.class.has_leases == nil then slot_request.class.has_leases = not has_no_leases(main, gates) end
  local has_leases = slot_request.class.has_leases
  while count < most and at_us <= until_us do
    if not is_free and not delays_none(main, 1) then return nil end
    local deferred
    if #gates > 0 then
      at_us, deferred = for_gates().start_through(serving, gates, first_us, at_us, until_us)
      if deferred then return deferred end
    end
    if has_leases then
      drawer.lease = serving.lease
      serving.lease = serving.lease + 1
    end
    commit_all(scope, at_us, costs, 0, drawer)
    if main.fair then for_fair().use_slack(main.fair, main, 1) end
    for index = 1, #gates do
      local gate = gates[index]
      commit_all(gate.scope, at_us, costs, gate.after, drawer)
    end
    count = count + 1
    slots[#slots + 1] = at_us
    if count < most then at_us = earliest_for_all_us(scope, main_opens_us(serving, main), costs, 0, drawer) end
  end
end

-- Books what it can of one wish. Twin of src/core/book.ts.
local MOST_LISTED = 1000
-- So far from now a slot may be pushed back to suit a key, so that its calls keep to its rate although each is asked for
-- a little late.
local MOST_PUSHED_US = 2000
-- A bucket is pushed back so long after a try at the earliest: who tries looks no further than now, and would be refused for it.
local UNTRIED_US = 3600000000

-- A lone limit that drains evenly is booked for many calls at once.
local function is_runnable(b)
  local limits, costs = b.main.scope.limits, b.main.costs
  if b.gate or #limits ~= 1 or costs[1] == 0 or not RULES[limits[1].code].excess then return false end
  local at_us = b.opens()
  return not keeps_gap(b.main.scope, at_us) and not keeps_gap(b.serving.bucket.shared, at_us)
end

local function book_run(b)
  local scope, limit, cost = b.main.scope, b.main.scope.limits[1], b.main.costs[1]
  local rule, at_us = RULES[limit.code], b.opens()
  local excess, step = rule.excess(limit, at_us, cost), cost * limit.period_us
  local room = (b.until_us - at_us) * limit.count - excess
  local fit = (b.until_us < at_us or room < 0) and 0 or math.floor(room / step) + 1
  -- A crumb is left to those whose turn comes first: it would cost a draw, and their share its fullness.
  local count = (b.ahead > 0 and fit < b.most) and 0 or math.min(b.most, fit)
  if count <= 0 then return { slots = {}, count = 0, at_us = 0, excess = 0 } end
  local function slot_at(index)
    return at_us + math.ceil(math.max(0, excess + index * step) / limit.count)
  end
  rule.commit(limit, slot_at(0), count * cost, b.main.drawer)
  scope.last_us = math.max(scope.last_us, slot_at(count - 1))
  return { slots = {}, count = count, at_us = at_us, excess = excess }
end

local function lets_pass(f, at_us)
  return agree_us(f.scope, at_us, f.costs, f.drawer) == at_us
end

-- When the key of a call lets it start that the others would give this slot, pushed back to 2 ms from now at most: by
-- more, and one slow key would hold up all. If it does not, nil and when to ask again: what the others give now lies as far
-- ahead as the first slot that they would have given in this draw, and later they will give as far.
local function pass_gate(b, first_us, slot_us, is_served)
  local gate = b.gate
  local now_us, claim = gate.drawer.now_us, gate.claim
  -- One that has been served stands behind all others.
  local is_due = not is_served and gate.own.turn_us >= claim.since_us
  local own_turn_us = is_due and gate.own.turn_us or math.huge
  local one = { asker = claim.asker, rank = claim.rank, step_us = claim.step_us, share = 1, since_us = claim.since_us }
  local before = slots_before(gate.scope, one, gate.own, own_turn_us)
  local passes_us = agree_us(gate.scope, opens_at_us(gate.scope, now_us, gate.step_us), gate.costs, gate.drawer)
  local turn_us = passes_us + math.floor(before * gate.step_us)
  -- Who waits for a turn with the others comes at that: what another leaves for those whose turn the key's is, is lost.
  local is_contended = b.main.scope.turns_until_us >= b.main.claim.since_us
  local left = before
  if is_contended then
    one.rank = claim.rank - 1
    left = slots_before(gate.scope, one, gate.own, own_turn_us)
  end
  local start_us = math.max(slot_us, passes_us + math.floor(left * gate.step_us))
  local is_tried = b.serving.is_try or now_us < b.serving.bucket.tried_us + UNTRIED_US
  local push_us = is_tried and 0 or math.min(b.until_us - now_us, MOST_PUSHED_US)
  -- Pushed behind those whose turn comes first, it would leave them nothing: the key's times only go forward, too.
  local latest_us = before > 0 and slot_us or math.max(slot_us, now_us + push_us)
  if start_us <= latest_us and lets_pass(gate, start_us) and (start_us == slot_us or lets_pass(b.main, start_us)) then
    return start_us
  end
  return nil, math.max(now_us, turn_us - math.max(first_us - now_us, push_us))
end

-- Whether no call of these holds a lease.
local function has_no_leases(b)
  return are_all_rates(b.main.scope) and (not b.gate or are_all_rates(b.gate.scope))
end

-- Whoever tries takes what there is at one moment: many calls of one cost are one of many times the cost.
local function is_at_once(b)
  return b.serving.is_try and #b.main.scope.limits > 0 and has_no_leases(b)
end

local function times(costs, count)
  local all = {}
  for index, cost in ipairs(costs) do all[index] = cost * count end
  return all
end

-- How many such calls the capacities let pass at once.
local MOST_TOGETHER = 1000000
local function most_of(f)
  local most = MOST_TOGETHER
  for index, limit in ipairs(f.scope.limits) do
    if f.costs[index] > 0 and RULES[limit.code].is_rate then
      most = math.min(most, math.floor(limit.capacity / f.costs[index]))
    end
  end
  return most
end

local function book_at_once(b)
  local at_us = b.opens()
  local booked = { slots = {}, count = 0, at_us = 0, excess = 0 }
  if b.gate then booked.deferred_us = select(2, pass_gate(b, at_us, at_us, false)) end
  if at_us > b.until_us or booked.deferred_us then return booked end
  local count, too_many = 0, math.min(b.most, most_of(b.main), b.gate and most_of(b.gate) or b.most) + 1
  while too_many - count > 1 do
    local middle, fits = math.floor((count + too_many) / 2), true
    for _, f in ipairs({ b.main, b.gate }) do
      fits = fits and agree_us(f.scope, at_us, times(f.costs, middle), f.drawer) == at_us
    end
    if fits then count = middle else too_many = middle end
  end
  if count == 0 then return booked end
  for _, f in ipairs({ b.main, b.gate }) do commit_all(f.scope, at_us, times(f.costs, count), f.drawer) end
  -- So little is booked ahead that all of a run start with the first.
  booked.count, booked.at_us, booked.excess = count, at_us, -(2 ^ 52)
  local next_us = agree_us(b.main.scope, b.opens(), b.main.costs, b.main.drawer)
  if b.gate and count < b.most and next_us <= b.until_us then
    booked.deferred_us = select(2, pass_gate(b, at_us, next_us, true))
  end
  return booked
end

local function book_list(b)
  local scope, costs, drawer, serving = b.main.scope, b.main.costs, b.main.drawer, b.serving
  local booked, has_leases = { slots = {}, count = 0, at_us = 0, excess = 0 }, not has_no_leases(b)
  local first_us = agree_us(scope, b.opens(), costs, drawer)
  local at_us = first_us
  if b.ahead > 0 and at_us + math.floor((b.most - 1) * b.main.step_us) > b.until_us then return booked end
  while #booked.slots < math.min(b.most, MOST_LISTED) and at_us <= b.until_us do
    if b.gate then
      at_us, booked.deferred_us = pass_gate(b, first_us, at_us, #booked.slots > 0)
      if booked.deferred_us then break end
    end
    drawer.lease = serving.lease
    commit_all(scope, at_us, costs, drawer)
    if b.gate then
      b.gate.drawer.lease = serving.lease
      commit_all(b.gate.scope, at_us, b.gate.costs, b.gate.drawer)
    end
    if has_leases then serving.lease = serving.lease + 1 end
    booked.slots[#booked.slots + 1] = at_us
    at_us = agree_us(scope, b.opens(), costs, drawer)
  end
  return booked
end

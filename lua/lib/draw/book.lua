-- Books what it can of one wish. Twin of src/core/book.ts.
local MOST_LISTED = 1000

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

-- Books slots for one wish, in one of three ways: as a run, all at one moment, or one by one.
-- Twin of src/core/draw/book.ts.
local MOST_LISTED = 1000

-- A lone limit that drains evenly is booked for many calls at once; slot by slot is too slow at 100,000/s.
local function is_runnable(booking)
  local limits, costs = booking.main.scope.limits, booking.main.costs
  if #booking.gates > 0 or #limits ~= 1 or costs[1] == 0 or not RULES[limits[1].code].excess then return false end
  local at_us = booking.opens()
  return not keeps_gap(booking.main.scope, at_us) and not keeps_gap(booking.serving.bucket.shared, at_us)
end

local function book_run(booking)
  local scope, limit, cost = booking.main.scope, booking.main.scope.limits[1], booking.main.costs[1]
  local rule, at_us = RULES[limit.code], booking.opens()
  local excess, step = rule.excess(limit, at_us, cost), cost * limit.period_us
  local room = (booking.until_us - at_us) * limit.count - excess
  local fit = (booking.until_us < at_us or room < 0) and 0 or math.floor(room / step) + 1
  for _, before in ipairs(booking.main.ahead) do
    local deadline_us = math.max(booking.until_us, before.start_us + after_us(limit, before.after[1] or 0))
    local left = (deadline_us - at_us) * limit.count - rule.excess(limit, at_us, before.sums[1])
    fit = math.min(fit, math.max(0, math.floor(left / step)))
  end
  -- Less than a whole share is left beside what comes before: it is not worth a draw.
  local is_too_little = #booking.main.ahead > 0 and fit < math.min(booking.most, booking.main.flow)
  local count = is_too_little and 0 or math.min(booking.most, fit)
  if count <= 0 then return { slots = {}, count = 0, at_us = 0, excess = 0 } end
  local function slot_of_run(index)
    return at_us + math.ceil(math.max(0, excess + index * step) / limit.count)
  end
  rule.commit(limit, slot_of_run(0), count * cost, booking.main.drawer)
  scope.last_us = math.max(scope.last_us, slot_of_run(count - 1))
  return { slots = {}, count = count, at_us = at_us, excess = excess }
end

-- Whether no call of this booking holds a lease.
local function has_no_leases(booking)
  for _, fitting in ipairs(booking.fittings) do
    if not are_all_rates(fitting.scope) then return false end
  end
  return true
end

-- A try takes what there is at one moment: many calls of one cost are one call of many times the cost. Where there is no
-- limit, each call may leave at the same moment, unless answers ask for a gap.
local function is_at_once(booking)
  local scope = booking.main.scope
  if #scope.limits == 0 then return #booking.gates == 0 and not keeps_gap(scope, booking.opens()) end
  return booking.serving.is_try and has_no_leases(booking)
end

local function book_at_once(booking)
  local at_us = booking.opens()
  local booked = { slots = {}, count = 0, at_us = 0, excess = 0 }
  booked.deferred = select(2, start_through(booking, at_us, at_us))
  if at_us > booking.until_us or booked.deferred then return booked end
  local is_free = #booking.main.scope.limits == 0 and not booking.serving.is_try
  local count, too_many = 0, (is_free and math.min(booking.most, MOST_LISTED) or booking.most) + 1
  for _, fitting in ipairs(booking.fittings) do too_many = math.min(too_many, most_of(fitting) + 1) end
  while too_many - count > 1 do
    local middle, fits = math.floor((count + too_many) / 2), true
    for _, fitting in ipairs(booking.fittings) do
      fits = fits and earliest_for_all_us(fitting.scope, at_us, times(fitting.costs, middle), fitting.drawer) == at_us
        and delays_none(fitting, middle)
    end
    if fits then count = middle else too_many = middle end
  end
  if count == 0 then return booked end
  for _, fitting in ipairs(booking.fittings) do
    commit_all(fitting.scope, at_us, times(fitting.costs, count), fitting.drawer)
  end
  -- With an excess so low, all calls of a run start at its first moment.
  booked.count, booked.at_us, booked.excess = count, at_us, -(2 ^ 52)
  if count < booking.most then booked.deferred = select(2, start_through(booking, at_us, at_us)) end
  return booked
end

local function book_list(booking)
  local scope, costs, drawer, serving = booking.main.scope, booking.main.costs, booking.main.drawer, booking.serving
  local booked, has_leases = { slots = {}, count = 0, at_us = 0, excess = 0 }, not has_no_leases(booking)
  local first_us = earliest_for_all_us(scope, booking.opens(), costs, drawer)
  local at_us = first_us
  -- As in a run: less than a whole share is left beside what comes before.
  local least = math.min(booking.most, booking.main.flow)
  if #booking.main.ahead > 0 and least > 1 then
    local last_us = at_us + math.floor((least - 1) * booking.main.step_us)
    if last_us > booking.until_us or not delays_none(booking.main, least) then return booked end
  end
  while #booked.slots < math.min(booking.most, MOST_LISTED) and at_us <= booking.until_us do
    if not delays_none(booking.main, 1) then break end
    at_us, booked.deferred = start_through(booking, first_us, at_us)
    if booked.deferred then break end
    for _, fitting in ipairs(booking.fittings) do
      fitting.drawer.lease = serving.lease
      commit_all(fitting.scope, at_us, fitting.costs, fitting.drawer)
    end
    if has_leases then serving.lease = serving.lease + 1 end
    booked.slots[#booked.slots + 1] = at_us
    if #booked.slots == booking.most then break end
    at_us = earliest_for_all_us(scope, booking.opens(), costs, drawer)
  end
  return booked
end

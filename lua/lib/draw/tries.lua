-- Functions for tries, and for buckets without limits. In both, many calls start at once.
-- @include lib/state/status

-- The most calls that may start at once if no limit applies.
local MOST_TOGETHER = 1000000

-- Returns how many such calls the capacities of the limits allow at once.
local function most_of(fitting)
  local most = MOST_TOGETHER
  for index, limit in ipairs(fitting.scope.limits) do
    local cost = fitting.costs[fitting.after + index]
    if cost > 0 and RULES[limit.code].is_rate then most = math.min(most, math.floor(limit.capacity / cost)) end
  end
  return most
end

local function book_at_once(serving, main, gates, most, until_us, granted)
  local at_us, fittings = main_opens_us(serving, main), { main, unpack(gates) }
  local _, deferred = for_gates().start_through(serving, gates, at_us, at_us, until_us)
  if at_us > until_us or deferred then return deferred end
  local is_free = #main.scope.limits == 0 and not serving.is_try
  local count, too_many = 0, (is_free and math.min(most, MOST_LISTED) or most) + 1
  for _, fitting in ipairs(fittings) do too_many = math.min(too_many, most_of(fitting) + 1) end
  while too_many - count > 1 do
    local middle, fits = math.floor((count + too_many) / 2), true
    for _, fitting in ipairs(fittings) do
      fits = fits and earliest_for_all_us(fitting.scope, at_us, times(fitting, middle), 0, fitting.drawer) == at_us
        and delays_none(fitting, middle)
    end
    if fits then count = middle else too_many = middle end
  end
  if count == 0 then return nil end
  for _, fitting in ipairs(fittings) do
    commit_all(fitting.scope, at_us, times(fitting, count), 0, fitting.drawer)
  end
  -- An excess this low makes all calls of a run start at its first moment.
  granted.run_count, granted.run_at_us, granted.run_excess = count, at_us, -(2 ^ 52)
  if count < most then return select(2, for_gates().start_through(serving, gates, at_us, at_us, until_us)) end
end

-- Names the cause in the reply to a try: the key that refuses it, or the shared limits if they refuse it for longer.
local function later_of_main(serving, main, granted)
  local next_us = earliest_for_all_us(main.scope, main_opens_us(serving, main), main.costs, 0, main.drawer)
  if next_us == math.huge or next_us <= granted.not_before_us then return end
  local binding = binding_at(main)
  if binding > 0 then granted.not_before_us, granted.binds_at = next_us, binding end
end

-- Sets when to try again: a refused try cannot pass before the last pause or cooldown ends.
local function until_open(serving, main, gates, granted)
  local fittings, open_us = { { scope = serving.bucket.shared, number = 0 }, main, unpack(gates) }, 0
  for _, fitting in ipairs(fittings) do open_us = math.max(open_us, closed_until_us(fitting.scope)) end
  local is_last = granted.not_before_us == math.huge or granted.not_before_us < open_us
  if open_us <= serving.now_us or not is_last then return end
  granted.not_before_us, granted.binds_at = open_us, closed_by(fittings, serving.now_us)
end

local function add_statuses_for(bucket, slot_request, numbers)
  local now, statuses = bucket.clock_us, {}
  add_statuses(statuses, bucket.shared, slot_request.class.costs, 0, now)
  local after = #bucket.shared.limits
  for _, key in ipairs(slot_request.keys) do
    add_statuses(statuses, open_key(key, now), slot_request.class.costs, after, now)
    after = after + #key.template
  end
  for _, status in ipairs(statuses) do
    for each = 1, 3 do numbers[#numbers + 1] = status[each] end
  end
end

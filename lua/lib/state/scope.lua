-- A scope is a set of limits with their common state, such as a pause.

local function fresh_scope(limits)
  return {
    last_us = 0, cool_until_us = 0, paused_until_us = 0, cut_us = 0, factor = 1000, since_us = 0, recover_us = 0,
    gap_us = 0, gap_until_us = 0, turns_until_us = 0, limits = limits, turns_key = nil, line = nil, is_served = nil,
    is_looked_at = nil,
  }
end

-- Returns how long one such call uses up the limits, in µs, under the limit that it uses most. Here and below,
-- `after` is the number of costs before those of the scope's limits.
local function step_of(limits, costs, after)
  local step_us = 0
  for index = 1, #limits do
    local limit = limits[index]
    local rule = RULES[limit.code]
    if rule.is_rate and not rule.is_budget then
      local limit_us = (costs[after + index] * limit.period_us) / limit.count
      if limit_us > step_us then step_us = limit_us end
    end
  end
  return step_us
end

-- Returns the part of the full rate that is active now, in per mille.
local function factor_at(scope, at_us)
  if scope.factor >= 1000 or at_us >= scope.since_us + scope.recover_us then return 1000 end
  local grown = math.floor((math.max(0, at_us - scope.since_us) * 1000) / scope.recover_us)
  return math.min(1000, scope.factor + grown)
end

-- Returns the time at which the full rate is active again; 0 if it was not cut.
local function whole_at_us(scope)
  return scope.factor >= 1000 and 0 or scope.since_us + math.ceil(((1000 - scope.factor) * scope.recover_us) / 1000)
end

-- True if calls must be further apart than their limits require, because the rate was cut or response headers ask for
-- it.
local function keeps_gap(scope, at_us)
  return at_us < scope.gap_until_us or factor_at(scope, at_us) < 1000
end

-- Returns when a cut rate allows the next call, assuming that the rate stays as it is at at_us.
local function after_cut_us(scope, at_us, step_us)
  local factor = factor_at(scope, at_us)
  local gap_us = factor < 1000 and math.ceil((step_us * 1000) / factor) or 0
  return math.min(scope.last_us + gap_us, scope.since_us + scope.recover_us)
end

-- Returns the earliest time at which a scope allows a call. Usually only the last slot matters.
local function opens_at_us(scope, now_us, step_us)
  local at_us, last_us = now_us, scope.last_us
  if scope.cool_until_us > at_us then at_us = scope.cool_until_us end
  local opens_us = at_us
  if scope.paused_until_us > opens_us then opens_us = scope.paused_until_us end
  if last_us > opens_us then opens_us = last_us end
  -- A gap applies only until gap_until_us. After that, only the limits set the time between calls.
  if at_us < scope.gap_until_us then opens_us = math.max(opens_us, math.min(last_us + scope.gap_us, scope.gap_until_us)) end
  if scope.factor < 1000 then opens_us = math.max(opens_us, after_cut_us(scope, at_us, step_us)) end
  return opens_us
end

-- Returns the earliest time, at or after at_us, that all limits allow; math.huge if it is unknown. A limit that
-- allows one time also allows every later time.
local function earliest_for_all_us(scope, at_us, costs, after, drawer)
  local limits, huge = scope.limits, math.huge
  for index = 1, #limits do
    local limit = limits[index]
    at_us = RULES[limit.code].earliest(limit, at_us, costs[after + index], drawer)
    if at_us == huge then return huge end
  end
  return at_us
end

-- Returns the index of the limit that delays such a call most; 0 if none delays it.
local function binding_of(scope, at_us, costs, after, drawer)
  local binding, latest_us = 0, at_us
  for index, limit in ipairs(scope.limits) do
    local slot_us = RULES[limit.code].earliest(limit, at_us, costs[after + index], drawer)
    if slot_us > latest_us then binding, latest_us = index, slot_us end
  end
  return binding
end

-- True if no call under these limits holds a lease.
local function are_all_rates(scope)
  local limits = scope.limits
  for index = 1, #limits do
    if not RULES[limits[index].code].is_rate then return false end
  end
  return true
end

local function commit_all(scope, slot_us, costs, after, drawer)
  local limits = scope.limits
  for index = 1, #limits do
    local limit = limits[index]
    RULES[limit.code].commit(limit, slot_us, costs[after + index], drawer)
  end
  if slot_us > scope.last_us then scope.last_us = slot_us end
end

-- When a call can start at the earliest, however many others leave: what a reply tells of it, so that a call which does not
-- wait that long is refused at once. Twin of src/core/draw/soonest.ts.

-- When a call can start at the earliest in a scope, and what decides that; 0: nothing that lasts beyond until_us. A cooldown
-- or a pause of the scope beside it holds too. It is not known when a lease comes free: then the rest decides.
local function soonest_in(scope, beside, costs, drawer, opens_us, after, now_us, until_us)
  local soonest_us, binding, leased = opens_us, 0, 0
  for index, limit in ipairs(scope.limits) do
    local at_us = RULES[limit.code].earliest(limit, opens_us, costs[index], drawer)
    if at_us == math.huge then leased = after + index
    elseif at_us > soonest_us then soonest_us, binding = at_us, after + index end
  end
  if soonest_us <= until_us then return soonest_us, 0 end
  if binding > 0 then return soonest_us, leased > 0 and leased or binding end
  local is_closed = math.max(closed_until_us(beside), closed_until_us(scope)) >= opens_us
  if is_closed then return soonest_us, closed_by(beside, scope, now_us) end
  return soonest_us, leased > 0 and leased or slowed_by(beside, scope, now_us)
end

-- Of a wish that was looked at, under the limits of the bucket and of its key.
local function soonest_of(serving, asked)
  -- A try is told when to ask again.
  if serving.is_try then return 0, 0 end
  local shared, now_us, main, of_key = serving.bucket.shared, serving.now_us, asked.main, asked.key_fitting
  local until_us = now_us + asked.horizon_us
  local soonest_us, binds_at = soonest_in(main.scope, shared, main.costs, main.drawer, asked.opens(), 0, now_us, until_us)
  if not of_key then return soonest_us, binds_at end
  local opens_us = opens_at_us(of_key.scope, now_us, of_key.step_us)
  local key_us, key_binds_at = soonest_in(of_key.scope, of_key.scope, of_key.costs, of_key.drawer, opens_us,
    #shared.limits, now_us, until_us)
  if key_us > soonest_us then return key_us, key_binds_at end
  return soonest_us, binds_at
end

-- Of a wish that was not served, under the limits of the bucket, and of its key if that was opened.
local function soonest_unserved(serving, wish, key_scope, horizon_us)
  local shared, now_us = serving.bucket.shared, serving.now_us
  local shared_costs, key_costs = split(wish.costs, #shared.limits)
  local function of_scope(scope, costs, after)
    local opens_us = opens_at_us(scope, now_us, step_of(scope.limits, costs))
    return soonest_in(scope, scope, costs, { asker = '', now_us = now_us, order = 0, lease = 0 }, opens_us, after, now_us,
      now_us + horizon_us)
  end
  local soonest_us, binds_at = of_scope(shared, shared_costs, 0)
  if not key_scope then return soonest_us, binds_at end
  local key_us, key_binds_at = of_scope(key_scope, key_costs, #shared.limits)
  if key_us > soonest_us then return key_us, key_binds_at end
  return soonest_us, binds_at
end

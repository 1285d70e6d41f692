-- Computes the earliest time at which a call can start, even if all other calls give up. Replies contain this time,
-- so that a call with an earlier deadline is rejected immediately.

-- Returns the time before which a scope lets no call start. A cut rate recovers while a call waits, so the rate is
-- taken at the time until which the call would wait at the current rate. Gaps are ignored, because the next response
-- may end a gap.
local function least_opens_at_us(scope, now_us, step_us)
  local latest_us = opens_at_us(scope, now_us, step_us)
  return math.max(now_us, scope.last_us, after_cut_us(scope, latest_us, step_us))
end

-- Returns the earliest start in a scope, and the number of the limit or cause that delays it. The number is 0 if the
-- start is at until_us or earlier. A cooldown or pause of the scope `beside` also counts. Concurrency limits are left
-- out, because it is unknown when a lease becomes free.
local function soonest_in(gate, beside, now_us, until_us)
  local scope, both = gate.scope, { beside, gate }
  local closed_us = math.max(closed_until_us(beside.scope), closed_until_us(scope))
  local opens_us = math.max(closed_us, least_opens_at_us(scope, now_us, gate.step_us))
  local soonest_us, binding = opens_us, 0
  for index, limit in ipairs(scope.limits) do
    local at_us = RULES[limit.code].earliest(limit, opens_us, gate.costs[gate.after + index], gate.drawer)
    if at_us < math.huge and at_us > soonest_us then soonest_us, binding = at_us, gate.after + index end
  end
  if soonest_us <= until_us then return soonest_us, 0 end
  if binding > 0 then return soonest_us, binding end
  if closed_us >= opens_us then return soonest_us, closed_by(both, now_us) end
  return soonest_us, slowed_by(both, now_us)
end

-- Returns the earliest start for a slot request that was checked, under the limits of the bucket and of its keys.
local function soonest_of(serving, main, gates, horizon_us)
  -- Tries need no earliest start, because their reply already says when to ask again.
  if serving.is_try then return 0, 0 end
  local now_us = serving.now_us
  local until_us = now_us + horizon_us
  local soonest_us, binds_at = soonest_in(main, { scope = serving.bucket.shared, number = 0 }, now_us, until_us)
  for _, gate in ipairs(gates) do
    local key_us, key_binds_at = soonest_in(gate, gate, now_us, until_us)
    if key_us > soonest_us then soonest_us, binds_at = key_us, key_binds_at end
  end
  return soonest_us, binds_at
end

-- Returns the earliest start for a slot request that was not served, under the limits of the bucket, and of its keys
-- if the draw opened them.
local function soonest_unserved(serving, slot_request, key_scopes, horizon_us)
  local now_us, after, soonest_us, binds_at = serving.now_us, 0, 0, 0
  for index, scope in ipairs({ serving.bucket.shared, unpack(key_scopes) }) do
    local gate = {
      scope = scope, number = index - 1, costs = slot_request.class.costs,
      step_us = step_of(scope.limits, slot_request.class.costs, after), after = after,
      drawer = { asker = '', now_us = now_us, order = 0, lease = 0 },
    }
    local key_us, key_binds_at = soonest_in(gate, gate, now_us, now_us + horizon_us)
    if key_us > soonest_us then soonest_us, binds_at = key_us, key_binds_at end
    after = after + #scope.limits
  end
  return soonest_us, binds_at
end

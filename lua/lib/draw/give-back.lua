-- Takes back slots that callers no longer need.

-- Cancels the booking of the last slot. The next returned slot lies before this one, so it is no longer the last one
-- and becomes a hole.
local function unbook(part, slot_us, drawer)
  if #part.scope.limits == 0 then return end
  local negative = {}
  for index, cost in ipairs(part.costs) do negative[index] = -cost end
  commit_all(part.scope, slot_us, negative, 0, drawer)
  part.scope.last_us = slot_us - 1
end

-- Returns the costs of one slot to the budgets of all parts. The time of the slot stays booked.
local function return_to_budgets(parts, slot_us, drawer)
  for _, part in ipairs(parts) do
    for index, limit in ipairs(part.scope.limits) do
      local rule = RULES[limit.code]
      if rule.is_budget then rule.commit(limit, slot_us, -part.costs[index], drawer) end
    end
  end
end

local function save_parts(parts, now_us)
  for _, part in ipairs(parts) do save_budgets(part.scope.limits, now_us, 'later') end
end

-- Takes slots back that are booked only in budgets.
local function take_back_from_budgets(parts, now_us, given)
  local drawer = { now_us = now_us, asker = given.replica, reserves = given.reserves }
  for _ = 1, given.next_number() do return_to_budgets(parts, given.next_number(), drawer) end
  save_parts(parts, now_us)
end

-- Takes slots back, the latest first. Cancels the booking of the last booked slot. A slot with later slots becomes a
-- hole, which the next draw takes first. Lowering the level instead would book the same time twice. `parts` are the
-- scopes of the bucket and of the keys, each with the costs of a call under its limits.
local function take_back(bucket, parts, given)
  local now_us, can_leave_holes = bucket.clock_us, true
  -- A hole has no lease, and books nothing in a budget, so slots that need these do not become holes.
  for _, part in ipairs(parts) do can_leave_holes = can_leave_holes and are_all_rates(part.scope) and not has_budgets end
  local drawer = { now_us = now_us, asker = given.replica, reserves = given.reserves }
  for index = 0, given.next_number() - 1 do
    local slot_us, is_last = given.next_number(), true
    for _, part in ipairs(parts) do
      local is_unlimited = part.scope == bucket.shared and #part.scope.limits == 0
      is_last = is_last and (is_unlimited or part.scope.last_us == slot_us)
    end
    if slot_us > now_us and is_last then
      for _, part in ipairs(parts) do unbook(part, slot_us, drawer) end
    elseif has_budgets then
      return_to_budgets(parts, slot_us, drawer)
    elseif slot_us > now_us and can_leave_holes then
      local member = hole_name(slot_us, given.replica, index, given.name)
      bucket.holes = bucket.holes + redis.call('ZADD', KEYS[3], slot_us, member)
    end
  end
  save_parts(parts, now_us)
  if bucket.holes > 0 then redis.call('PEXPIRE', KEYS[3], KEEP_MS) end
end

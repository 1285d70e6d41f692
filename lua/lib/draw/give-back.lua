-- Takes slots back. Twin of takeBack in src/core/draw/give-back.ts.

-- The next slot that comes back lies before this one and is no longer the last: it becomes a hole.
local function unbook(scope, slot_us, costs, first, drawer)
  if not scope or #scope.limits == 0 then return end
  local negative = {}
  for index = 1, #scope.limits do negative[index] = -costs[first + index] end
  commit_all(scope, slot_us, negative, drawer)
  scope.last_us = slot_us - 1
end

-- Takes slots back, latest first. The last one booked is unbooked. One with others behind it becomes a hole that the next
-- draw takes first: a lower level would put a new slot on a time that is already booked.
local function take_back(bucket, key_scope, given)
  local shared, now_us = bucket.shared, bucket.clock_us
  -- A hole carries no lease, so slots that need one do not become holes.
  local can_leave_holes = are_all_rates(shared) and (not key_scope or are_all_rates(key_scope))
  for index = 0, given.next_number() - 1 do
    local slot_us = given.next_number()
    local is_last = (#shared.limits == 0 or shared.last_us == slot_us)
      and (not key_scope or key_scope.last_us == slot_us)
    if slot_us > now_us and is_last then
      unbook(shared, slot_us, given.costs, 0, { now_us = now_us })
      unbook(key_scope, slot_us, given.costs, #shared.limits, { now_us = now_us })
    elseif slot_us > now_us and can_leave_holes then
      local member = hole_name(slot_us, given.asker, index, given.name)
      bucket.holes = bucket.holes + redis.call('ZADD', KEYS[3], slot_us, member)
    end
  end
  if bucket.holes > 0 then redis.call('PEXPIRE', KEYS[3], KEEP_MS) end
end

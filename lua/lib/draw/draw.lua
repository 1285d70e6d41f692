-- Runs one draw, after its request was read.

-- Returns the bucket, whether the replica's policy is active, and whether the replica knows that Redis lost the
-- state.
local function open_bucket(terms, server_us, drew)
  local bucket = load_bucket(KEYS[1])
  local is_lost = is_state_lost(bucket, terms, server_us, drew)
  if not bucket then return for_changes().new_bucket(terms, server_us), true, is_lost end
  advance(bucket, server_us)
  local is_known = bucket.text == terms.text and terms.version <= bucket.version
  local is_agreed = is_known or for_changes().settle_terms(bucket, terms, server_us)
  if is_agreed then bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us) end
  return bucket, is_agreed, is_lost
end

local function reply_of(bucket, new_text, position, numbers, spare, notes, tags)
  local alive = math.max(1, bucket.alive, bucket.alive_before)
  local shared, now_us = bucket.shared, bucket.clock_us
  local closed_us = closed_until_us(shared)
  local is_open = closed_us <= now_us
  local head = struct.pack('<ddddddddddd', now_us, bucket.generation, bucket.version, alive, bucket.source, position.turn_us,
    position.since_us, position.lease_order, is_open and 0 or closed_us,
    is_open and 0 or closed_by({ { scope = shared, number = 0 } }, now_us), spare or 0)
  return { head .. pack_numbers(numbers), new_text, notes or tags and '', tags }
end

-- Returns the replica's position in the line of a key; nil if the draw did not read the key, because then its
-- position is unchanged.
local function position_in(serving, key)
  local line = key.scope and key.scope.line
  if not line then return nil end
  line.position = line.position or settle_line(serving, line)
  return line.position
end

-- Adds the result of a slot request to the reply. The short form contains only the reason for the wait.
local function encode(serving, slot_request, granted, numbers)
  local at, slots, keys = #numbers, granted.slots, slot_request.keys
  local is_short = granted.count == 0 and granted.soonest_us == 0 and granted.not_before_us < math.huge
  for index = 1, #keys do is_short = is_short and not position_in(serving, keys[index]) end
  if is_short then
    numbers[at + 1], numbers[at + 2], numbers[at + 3] = -1, granted.not_before_us, granted.binds_at
    return
  end
  numbers[at + 1], numbers[at + 2], numbers[at + 3] = granted.run_count, granted.run_at_us, granted.run_excess
  numbers[at + 4], numbers[at + 5], numbers[at + 6] = granted.not_before_us == math.huge and -1 or granted.not_before_us, granted.binds_at, granted.soonest_us
  at = at + 6
  for index = 1, #keys do
    local position = position_in(serving, keys[index])
    numbers[at + 1] = position and 0 or -1
    position = position or NO_POSITION
    numbers[at + 2], numbers[at + 3], numbers[at + 4] = position.turn_us, position.since_us, position.lease_order
    at = at + 4
  end
  numbers[at + 1] = #slots
  for index = 1, #slots do numbers[at + 1 + index] = slots[index] end
  if not serving.pool then return end
  at = at + 1 + #slots
  for index = 1, #slots do numbers[at + index] = granted.members[index] end
end

-- Saves the changed keys. A try saves only the keys that it drew from; a draw also saves the keys whose lines it
-- changed.
local function save_keys(serving, keys)
  for index = 1, #keys do
    local key = keys[index]
    local scope = key.scope
    if scope and (key.is_drawn or key.is_used_up or not serving.is_try and (scope.line or scope.is_looked_at)) then
      save_key(key.state_key, scope, serving.now_us)
      flush_leases(scope.limits, serving.now_us)
    end
  end
end

local function draw(serving, terms, keys, slot_requests)
  local bucket, is_agreed, is_lost = open_bucket(terms, serving.now_us, serving.drew)
  serving.bucket, serving.now_us, serving.shares, serving.slot_requests = bucket, bucket.clock_us, terms.shares, slot_requests
  -- A draw that only asks when calls could start does not count as an asker with a share, and keeps its position.
  local is_look = true
  for index = 1, #slot_requests do is_look = is_look and slot_requests[index].wanted == 0 end
  if not serving.is_try and not is_look then count_asker(bucket, serving.drew.at_us) end
  if not is_agreed then
    save_bucket(KEYS[1], bucket)
    return reply_of(bucket, bucket.text, NO_POSITION, {})
  end

  bucket.shared.turns_key = KEYS[2]
  if is_lost then
    for_losses().use_up(bucket.shared, serving.now_us)
    bucket.has_changed = true
    for _, key in ipairs(keys) do key.is_lost = true end
  end
  serving.alive, serving.drawer.now_us = math.max(1, bucket.alive, bucket.alive_before), bucket.clock_us
  serving.sharers = serving.alive
  serving.missed_us = serving.now_us - math.floor(serving.horizon_us / 2)
  load_keys(keys)
  local served, numbers, tags = {}, {}, nil
  if serving.pool then for_pools().open_pool(serving) end
  if serving.is_fair then
    for_fair().take_turns(serving, KEYS[#KEYS], terms.limits, LAST_BEFORE_NAMES + #slot_requests)
    serving.fair.functions = for_fair()
  end
  for index = 1, #slot_requests do
    local slot_request = serving.slot_requests[index]
    slot_request.first_lease = serving.lease
    served[slot_request.number] = serve(serving, slot_request)
  end
  local position = is_look and serving.own or settle_line(serving, line_of(serving, bucket.shared, serving.own))
  if serving.fair and not is_look then for_fair().order_waiters(serving, position.lease_order > 0) end
  if serving.pool then bucket.shared.turns_until_us = serving.pool.scope.turns_until_us end
  for index = 1, #slot_requests do encode(serving, slot_requests[index], served[index], numbers) end
  if serving.is_try then
    for index = 1, #slot_requests do
      for_tries().add_statuses_for(bucket, slot_requests[index], numbers)
      if serving.pool then for_pools().add_member_statuses(serving, slot_requests[index], numbers) end
    end
  end
  if serving.is_try and serving.has_granted and #terms.limits > 0 then bucket.tried_us = serving.now_us end
  -- A refused try changes nothing.
  if serving.is_try and not serving.has_granted and not bucket.has_changed then
    return reply_of(bucket, '', position, numbers, 0, has_budgets and for_budgets().notes_of(serving, served, keys) or nil)
  end
  save_bucket(KEYS[1], bucket)
  if serving.fair then
    for_fair().save_fair(serving.fair)
    tags = for_fair().packed_tags(serving, slot_requests)
  elseif serving.are_others_fair then
    tags = pack_numbers({ 0 })
  end
  local spare = not serving.is_try and spare_leases(bucket.shared.limits, serving.now_us)
  flush_leases(bucket.shared.limits, serving.now_us)
  if #serving.shadows > 0 and serving.has_granted then for_shadows().save_shadows(serving.shadows) end
  save_keys(serving, keys)
  return reply_of(bucket, '', position, numbers, spare, has_budgets and for_budgets().notes_of(serving, served, keys) or nil, tags)
end

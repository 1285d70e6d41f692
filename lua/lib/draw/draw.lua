-- One draw, once its request has been read. Twin of src/core/draw/draw.ts.

-- The bucket; whether the asker's policy is in force; and whether the asker knows that Redis has lost the bucket's state.
local function open_bucket(terms, server_us, drew)
  local bucket = load_bucket(KEYS[1])
  local is_lost = is_state_lost(bucket, terms, server_us, drew)
  if not bucket then return new_bucket(terms, server_us), true, is_lost end
  advance(bucket, server_us)
  local is_agreed = settle_terms(bucket, terms, server_us)
  if is_agreed then bucket.shared.limits = apply_limits(bucket.shared.limits, terms.limits, bucket.clock_us) end
  return bucket, is_agreed, is_lost
end

local function reply_of(bucket, new_text, place, wishes)
  local alive = math.max(1, bucket.alive, bucket.alive_before)
  local closed_us, shared = closed_until_us(bucket.shared), bucket.shared
  local is_open = closed_us <= bucket.clock_us
  return {
    bucket.clock_us, bucket.generation, bucket.version, alive, new_text,
    place.turn_us, place.turn_name, place.lease_order, bucket.source,
    is_open and 0 or closed_us, closed_by({ { scope = shared, number = 0 } }, bucket.clock_us), unpack(wishes),
  }
end

-- The asker's place for a key; as before, if the key was not looked at.
local function place_in(serving, key, before)
  if not key.scope or not key.scope.line then return before end
  key.place = key.place or settle_line(serving, key.scope.line)
  return key.place
end

local function encode(serving, wish, granted)
  local run = granted.run
  local reply = { run.count, run.at_us, run.excess, or_minus_one(granted.not_before_us), granted.binds_at, granted.soonest_us }
  local at = 6
  for index, key in ipairs(wish.keys) do
    local place = place_in(serving, key, wish.places[index])
    reply[at + 1], reply[at + 2], reply[at + 3] = place.turn_us, place.turn_name, place.lease_order
    at = at + 3
  end
  for index, slot_us in ipairs(granted.slots) do reply[at + index] = slot_us end
  return reply
end

local function statuses_for(statuses, bucket, wish)
  local now = bucket.clock_us
  add_statuses(statuses, bucket.shared, wish.costs, 0, now)
  local after = #bucket.shared.limits
  for _, key in ipairs(wish.keys) do
    add_statuses(statuses, open_key(key, now), wish.costs, after, now)
    after = after + #key.limits
  end
end

local function draw(serving, terms, keys, wishes)
  local bucket, is_agreed, is_lost = open_bucket(terms, serving.now_us, serving.drew)
  serving.bucket, serving.now_us, serving.shares = bucket, bucket.clock_us, terms.shares
  -- One that only asks when calls could start takes no share, and keeps its place.
  local is_look = true
  for _, wish in ipairs(wishes) do is_look = is_look and wish.wanted == 0 end
  if not serving.is_try and not is_look then count_asker(bucket, serving.drew.at_us) end
  if not is_agreed then
    save_bucket(KEYS[1], bucket)
    return reply_of(bucket, bucket.text, NO_PLACE, {})
  end

  bucket.shared.turns_key = KEYS[2]
  if is_lost then
    use_up(bucket.shared, serving.now_us)
    bucket.has_changed = true
    for _, key in ipairs(keys) do key.is_lost = true end
  end
  serving.alive = math.max(1, bucket.alive, bucket.alive_before)
  serving.is_new_window = bucket.is_new_window
  serving.missed_us = serving.now_us - math.floor(serving.horizon_us / 2)
  local replies = {}
  for index, wish in ipairs(wishes) do replies[index] = serve(serving, wish) end
  local place = is_look and serving.own or settle_line(serving, line_of(serving, bucket.shared, serving.own))
  for index, wish in ipairs(wishes) do replies[index] = encode(serving, wish, replies[index]) end
  if serving.is_try then
    for _, wish in ipairs(wishes) do statuses_for(replies, bucket, wish) end
  end
  if serving.is_try and serving.has_granted and #terms.limits > 0 then bucket.tried_us = serving.now_us end
  -- A refused try changes nothing.
  if serving.is_try and not serving.has_granted and not bucket.has_changed then return reply_of(bucket, '', place, replies) end
  save_bucket(KEYS[1], bucket)
  if #serving.shadows > 0 and serving.has_granted then save_shadows(serving.shadows) end
  for _, key in ipairs(keys) do
    -- A try saves only the keys that it drew from, and a draw those that it did not only look at.
    if key.scope and (key.is_drawn or key.is_used_up or not serving.is_try and key.scope.line) then save_key(key.state_key, key.scope, serving.now_us) end
  end
  return reply_of(bucket, '', place, replies)
end

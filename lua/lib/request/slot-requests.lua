-- Reads the slot requests of a replica from one argument of whole numbers, packed as doubles. First come classes of
-- calls. A class has the costs of one call under the limits of the bucket, of the call's keys, and of the shadows.
-- Then come the slot requests, each with the number of its class. The following arguments are the names of the slot
-- requests.
local LAST_BEFORE_NAMES = 4

-- Reads the numbers of an argument. Returns nil if a number is not whole: a fraction, NaN or an infinity makes the
-- sum differ from 0.
local function whole_numbers(packed)
  local count, odd = #packed / 8, 0
  local numbers = { struct.unpack('<' .. string.rep('d', count), packed) }
  for index = 1, count do
    local number = numbers[index]
    odd = odd + number % 1
    if number >= 2 ^ 53 or number <= -(2 ^ 53) then return nil end
  end
  return odd == 0 and numbers or nil
end

-- Reads the classes. Returns them and the position after them. Returns nil if a cost is invalid.
local function read_classes(numbers, shadow_count)
  local classes, at, least = {}, 1, 0
  for index = 1, numbers[1] or 0 do
    local count, costs, shadow_costs = numbers[at + 1] or -1, {}, nil
    for each = 1, count do
      local cost = numbers[at + 1 + each] or -1
      if cost < least then least = cost end
      costs[each] = cost
    end
    at = at + 1 + count
    if shadow_count > 0 then shadow_costs = { unpack(numbers, at + 1, at + shadow_count) } end
    for each = 1, shadow_count do least = math.min(least, numbers[at + each] or -1) end
    at = at + shadow_count
    if count < 0 or least < 0 then return nil end
    -- Creates all fields together, because Lua takes long to add a field later.
    classes[index] = {
      costs = costs, shadow_costs = shadow_costs, templates = nil, share = nil, flow = nil, step_us = nil, has_leases = nil,
      rank = nil, main = nil,
    }
  end
  return classes, at
end

-- Records the first cost that exceeds its limit's capacity. Returns how many limits were read so far.
local function check_costs(slot_requests, limits, costs, after)
  for index = 1, #limits do
    local cost, capacity = costs[after + index], limits[index].capacity
    if cost and cost > capacity and not slot_requests.too_large then slot_requests.too_large, slot_requests.capacity = cost, capacity end
  end
  return after + #limits
end

-- True if a class has one cost for each limit of such calls. Calls of one class nearly always have the same limits.
local function fits_class(slot_requests, class, terms, keys)
  local templates = class.templates
  local is_known = templates and #templates == #keys
  for index = 1, #keys do is_known = is_known and templates[index] == keys[index].template end
  if is_known then return true end
  templates = {}
  local known = check_costs(slot_requests, terms.limits, class.costs, 0)
  for index = 1, #keys do
    templates[index] = keys[index].template
    known = check_costs(slot_requests, keys[index].template, class.costs, known)
  end
  -- Discards values that were computed for other limits.
  class.templates, class.flow, class.has_leases, class.main = templates, nil, nil, nil
  return known + (terms.member_limits or 0) == #class.costs
end

-- Reads the slot requests, each for at least least_wanted calls. Returns nil if one is invalid. Sets too_large if a
-- call costs more than a limit ever allows.
local function read_slot_requests(packed, terms, keys, shadows, least_wanted, is_fair, pool)
  local numbers = whole_numbers(packed)
  if not numbers then return nil end
  local classes, at = read_classes(numbers, #shadows)
  if not classes then return nil end
  local slot_requests, shares = {}, terms.shares
  for index = 1, numbers[at + 1] or 0 do
    local class, wanted, rank, how, since_us, next_since_us, last_since_us, key_count = unpack(numbers, at + 2, at + 9)
    if not key_count or not classes[class] or wanted < least_wanted or not shares[rank + 1] then return nil end
    local own, positions = {}, nil
    class, at = classes[class], at + 8
    for each = 1, key_count do
      -- The number of a key. It is negative if the asking replica has a position in the key's queue, which follows.
      local number = numbers[at + 2] or 0
      local key = keys[number < 0 and -number or number]
      if not key then return nil end
      own[each], at = key, at + 1
      if number < 0 then
        positions = positions or {}
        positions[each] = { turn_us = 0, since_us = numbers[at + 2] or 0, lease_order = numbers[at + 3] or 0 }
        at = at + 2
      end
    end
    if not fits_class(slot_requests, class, terms, own) then return nil end
    -- Few slot requests have weights, a floor or more. So most need 16 fields at most, which Lua creates together.
    local slot_request = is_fair and {
      index = index, number = index, class = class, keys = own, wanted = wanted, rank = rank, slice = rank < 1 and rank or 1,
      since_us = since_us, next_since_us = next_since_us, last_since_us = last_since_us, first = 2, tag = 0, key = nil, turns = nil,
      names = nil, first_lease = 0,
    } or {
      index = index, number = index, class = class, keys = own, wanted = wanted, rank = rank, slice = rank, since_us = since_us,
      next_since_us = next_since_us, last_since_us = last_since_us,
    }
    if positions then slot_request.positions = positions end
    if how % 2 == 1 then slot_request.is_bounded = true end
    if how >= 2 then slot_request.reserves = true end
    slot_requests[index] = slot_request
  end
  if is_fair then slot_requests.critical_part, slot_requests.pending, at = (numbers[at + 2] or 1000) / 1000, {}, at + 1 end
  for index = 1, is_fair and #slot_requests or 0 do
    local slot_request, count = slot_requests[index], numbers[at + 4] or 0
    local floor_us = numbers[at + 2] or 0
    if floor_us > 0 then slot_request.floor_us = floor_us end
    slot_requests.pending[index], at = numbers[at + 3] == 1, at + 3
    -- Most weights are 1. Then the slot request needs no list of them.
    for each = 1, count do
      if numbers[at + 1 + each] ~= 1000 then slot_request.weights = {} end
    end
    for each = 1, slot_request.weights and count or 0 do slot_request.weights[each] = (numbers[at + 1 + each] or 0) / 1000 end
    at = at + count
  end
  for index = 1, pool and #slot_requests or 0 do
    local slot_request, home = slot_requests[index], numbers[at + 1 + index]
    if not home or (home ~= 0 and not pool.members[math.abs(home)]) then return nil end
    slot_request.home, slot_request.slice = home, 0
  end
  return slot_requests
end

-- Reads the first part of every request: the policy of the asking replica, and the keys.

-- Reads the policy: its version, the shares of the priorities, and the shared limits. Returns nil if it is invalid.
local function read_terms(next_number, text)
  local version = next_number()
  local shares = { next_number(), next_number(), next_number(), next_number() }
  local limits = read_limits(next_number)
  if not limits or version < 0 then return nil end
  return { version = version, shares = shares, limits = limits, text = text }
end

-- Adds the cost under each limit to `costs`. Returns nil if a cost is invalid. Sets too_large to a cost that exceeds
-- its limit's capacity.
local function read_costs(next_number, limits, costs)
  for _, limit in ipairs(limits) do
    local cost = next_number()
    if cost < 0 then return nil end
    if cost > limit.capacity then costs.too_large, costs.capacity = cost, limit.capacity end
    costs[#costs + 1] = cost
  end
  return costs
end

-- Reads the keys of the request, each with a template of its limits. Returns nil if one is invalid.
local function read_keys(next_number, terms)
  bind_keys(terms.limits, 3)
  local used, keys, template, parts = 3 + count_parts(terms.limits), {}, nil, 0
  for index = 1, next_number() do
    local limits = read_limits(next_number, keys)
    if not limits then return nil end
    if limits ~= template then template, parts = limits, count_parts(limits) end
    -- Creates most fields together, because Lua takes long to add a field later.
    keys[index] = {
      template = limits, limits = nil, state_key = KEYS[used + 1], turns_key = KEYS[used + 2], parts_after = used + 2,
      scope = nil, packed = nil, is_drawn = nil,
    }
    used = used + 2 + parts
  end
  return keys
end

-- Returns the limits of a key, with their Redis keys. Creates them on first use, because most keys share a template,
-- and few keys of a request are needed.
local function limits_of(key)
  key.limits = key.limits or bind_keys(copy_limits(key.template), key.parts_after)
  return key.limits
end

-- Reads the policy and the keys. Returns nil if a number is invalid.
local function read_frame(next_number, text)
  local terms = read_terms(next_number, text)
  local keys = terms and read_keys(next_number, terms)
  if not keys then return nil end
  for _, key in ipairs(keys) do limits_of(key) end
  return terms, keys
end

-- Returns the scope of a key, loaded on first use.
local function open_key(key, now_us)
  local scope = key.scope
  if not scope then
    if key.packed == nil then key.packed = redis.call('GET', key.state_key) end
    scope = scope_of_key(key.packed, limits_of(key), now_us)
    scope.turns_key, key.scope = key.turns_key, scope
  end
  return scope
end

-- Reads the states of several keys with one command. Separate commands would take longer than the rest of the work.
local function load_keys(keys)
  if #keys < 2 then return end
  local names = {}
  for index = 1, #keys do names[index] = keys[index].state_key end
  local found = redis.call('MGET', unpack(names))
  for index = 1, #keys do keys[index].packed = found[index] end
end

-- True if the resets of these limits were computed for a different time than this one.
local function are_resets_off(limits, now_us)
  for _, limit in ipairs(limits) do
    local resets = limit.resets
    if resets and (now_us < resets[1] or now_us >= resets[2]) then return true end
  end
  return false
end

local function are_all_resets_off(terms, keys, shadows, now_us)
  if are_resets_off(terms.limits, now_us) then return true end
  for _, shadow in ipairs(shadows) do
    if are_resets_off({ shadow.limit }, now_us) then return true end
  end
  for _, key in ipairs(keys) do
    if are_resets_off(key.template, now_us) then return true end
  end
  return false
end

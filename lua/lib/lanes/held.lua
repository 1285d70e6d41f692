-- @include lib/lanes/calls
-- Jobs that workers have fetched and have yet to begin, in the order in which they go: by key, '' for those without one.

-- Of so many that workers have, the latest ones are looked at.
local MOST_ACTIVE = 10000

local function hold(held, id, key, share)
  local lane = held.lanes[key] or { jobs = 0, calls = 0 }
  held.lanes[key], held.places[id] = lane, { key, -4, lane.jobs, lane.calls }
  lane.jobs, lane.calls = lane.jobs + 1, lane.calls + share
end

-- A job that is about to be fetched stands behind those of its key, if workers hold any.
local function joins_held(held)
  return function(id, key, share)
    if not key or not held.lanes[key] then return false end
    hold(held, id, key, share)
    held.joined = held.joined + 1
    return true
  end
end

-- What each worker told, less what it has ended since; for how many calls they stand is looked up for the first `most`.
local function held_by_workers(lanes, prefix, active, wants, most)
  local held = { places = {}, lanes = {}, joined = 0 }
  if most < 1 then return held end
  local latest, is_active, is_told, lists = redis.call('LRANGE', active, 0, MOST_ACTIVE - 1), {}, {}, {}
  for _, id in ipairs(latest) do is_active[id] = true end
  local workers = redis.call('HGETALL', wants)
  for at = 1, #workers, 2 do
    local list, ids = {}, redis.call('GET', lanes.held .. workers[at])
    for _, id in ipairs(ids and cjson.decode(ids) or {}) do
      if is_active[id] then
        list[#list + 1], is_told[id] = id, true
      end
    end
    if #list > 0 then lists[#lists + 1] = list end
  end
  if #lists == 0 then return held end

  local looked_at = 0
  local function add(id, only_behind)
    if looked_at == most then return end
    looked_at = looked_at + 1
    local name, opts = unpack(redis.call('HMGET', prefix .. id, 'name', 'opts'))
    local key = name and key_of(name) or ''
    if name and (held.lanes[key] or not only_behind) then hold(held, id, key, share_in(opts)) end
  end
  -- Workers take turns.
  local longest = 0
  for _, list in ipairs(lists) do longest = math.max(longest, #list) end
  for at = 1, longest do
    for _, list in ipairs(lists) do
      if list[at] then add(list[at]) end
    end
  end
  -- Those that were fetched after all of them, and have yet to be told of, stand behind those of their key.
  local first_told = 1
  while not is_told[latest[first_told]] do first_told = first_told + 1 end
  for at = first_told - 1, 1, -1 do add(latest[at], true) end
  return held
end

-- How many jobs of a key are held or stand before others that wait, and for how many calls these and those stand.
local function with_held(held, key, jobs, sums)
  local lane = held.lanes[key] or { jobs = 0, calls = 0 }
  return lane.jobs + jobs, lane.calls + calls_of(sums, jobs)
end

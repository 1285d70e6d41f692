-- @include lib/lanes/look/count-calls
-- Lists the jobs that workers have fetched and not started, by key ('' for none), in the order in which they will
-- start.

-- The most jobs held by workers that are read, the most recently fetched ones.
local MOST_ACTIVE = 10000

local function hold(held, id, key, share)
  local lane = held.lanes[key] or { jobs = 0, calls = 0 }
  held.lanes[key], held.positions[id] = lane, { key, -4, lane.jobs, lane.calls }
  lane.jobs, lane.calls = lane.jobs + 1, lane.calls + share
end

-- Returns a function that is true for a job that waits to be fetched and whose key has held jobs. The job then starts
-- after these.
local function joins_held(held)
  return function(id, key, share)
    if not key or not held.lanes[key] then return false end
    hold(held, id, key, share)
    held.joined = held.joined + 1
    return true
  end
end

-- Reads the jobs that each worker has reported as held, without those that have ended since. Reads the cost of the
-- first `most` jobs.
local function held_by_workers(lanes, prefix, active, live, most)
  local held = { positions = {}, lanes = {}, joined = 0 }
  if most < 1 then return held end
  local latest, is_active, is_reported, lists = redis.call('LRANGE', active, 0, MOST_ACTIVE - 1), {}, {}, {}
  for _, id in ipairs(latest) do is_active[id] = true end
  local workers = redis.call('HGETALL', live)
  for at = 1, #workers, 2 do
    local list, ids = {}, redis.call('GET', lanes.held .. workers[at])
    for _, id in ipairs(ids and cjson.decode(ids) or {}) do
      if is_active[id] then
        list[#list + 1], is_reported[id] = id, true
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
  -- Merges the lists of the workers, one job of each worker at a time.
  local longest = 0
  for _, list in ipairs(lists) do longest = math.max(longest, #list) end
  for at = 1, longest do
    for _, list in ipairs(lists) do
      if list[at] then add(list[at]) end
    end
  end
  -- Jobs that were fetched later, and that no worker has reported yet, start after the held jobs of their key.
  local first_reported = 1
  while not is_reported[latest[first_reported]] do first_reported = first_reported + 1 end
  for at = first_reported - 1, 1, -1 do add(latest[at], true) end
  return held
end

-- Returns how many jobs of a key start before a given job, which are the held ones and `jobs` more, and how many
-- calls these jobs cost.
local function with_held(held, key, jobs, sums)
  local lane = held.lanes[key] or { jobs = 0, calls = 0 }
  return lane.jobs + jobs, lane.calls + calls_of(sums, jobs)
end

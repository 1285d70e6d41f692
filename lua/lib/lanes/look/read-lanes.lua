-- Reads up to `most` lanes: those in line, those that are blocked, and those of ordered keys that wait for their head
-- job to end. `sums_of(key)` returns the cost of a lane's jobs, in calls.
local function open_reading(lanes, held, most, now, sums_of)
  local read = { list = {}, parents = {}, is_read = {}, others = {} }
  local count, parked, paths = 0, unpack(redis.call('HMGET', lanes.state, 'parked', 'paths'))
  for _, names in ipairs({ lanes.ready, lanes.blocked, lanes.heads }) do count = count + redis.call('ZCARD', names) end
  read.others.lanes, read.others.jobs = count, tonumber(parked) or 0

  local function weight_of(text)
    return tonumber(redis.call('HGET', lanes.weights, text)) or 1
  end

  local function blocked_ms(text)
    return math.max(0, (tonumber(redis.call('ZSCORE', lanes.blocked, text)) or 0) - now)
  end

  local function note_parents(key)
    local parent = parent_of(key)
    while parent ~= '' and not read.parents[parent] do
      read.parents[parent] = { parent, weight_of(parent), blocked_ms(parent) }
      parent = parent_of(parent)
    end
  end

  function read.lane(key, blocked_for_ms)
    local waiting, sums = redis.call('ZCARD', lanes.lane .. key), sums_of(key)
    local jobs, calls = with_held(held, key, waiting, sums)
    read.list[#read.list + 1] = { key, jobs, weight_of(key), blocked_for_ms, calls }
    read.others.jobs, read.is_read[key] = read.others.jobs - waiting, true
    note_parents(key)
  end

  function read.line(names, blocked_from)
    local all = redis.call('ZRANGE', names, 0, most - 1 - #read.list, 'WITHSCORES')
    for at = 1, #all, 2 do
      local item = all[at]
      local line = paths and names ~= lanes.heads and line_of(lanes, item)
      local below = line and names ~= line and redis.call('ZCARD', line) or 0
      if below > 0 then
        read.others.lanes = read.others.lanes + below
        read.line(line)
      end
      local is_lane = below == 0 or redis.call('EXISTS', lanes.lane .. item) == 1
      if is_lane and not read.is_read[item] and #read.list < most then
        read.others.lanes = read.others.lanes - 1
        read.lane(item, blocked_from and math.max(0, tonumber(all[at + 1]) - blocked_from) or 0)
      elseif below > 0 then
        read.others.lanes = read.others.lanes - 1
      end
    end
  end

  -- Returns the parents of the lanes that were read, with their weights and the ms until they are no longer blocked.
  function read.all_parents()
    local heads = {}
    for _, parent in pairs(read.parents) do heads[#heads + 1] = parent end
    return heads
  end

  return read
end

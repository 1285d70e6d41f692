-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/look/count-calls
-- @include lib/lanes/states/unended
-- Chooses the next job of a queue by start-time fair queueing (Goyal, Vin and Cheng, 1996) of its lanes, in each line
-- of lib/lanes/line separately. Tags count calls: a job's share of the bucket, divided by the weights of its lane and
-- of each parent above it. Jobs without a key form one more lane, in BullMQ's own sets. An ordered lane starts one
-- job at a time (lib/lanes/order). A job with a key can be in BullMQ's sets, because it was retried, recovered or
-- moved by a tool. Such a job joins its lane first.

-- The most jobs that one run of the script moves into lanes, and the most removed jobs that it skips.
local MOST_MOVED, MOST_GONE = 300, 1000
-- While the queue's limit of active jobs is reached, a worker looks for jobs again after this many ms.
local FULL_MS = 100
-- A worker that left out keys looks again after this time.
local LEFT_OUT_MS = 25

-- Records the result of a probe for its lane, and for each parent above it that had no room.
local function apply_probe(lanes, key, went_at_once)
  local text = key
  while text ~= '' do
    local left = tonumber(redis.call('HGET', lanes.slow, text)) or 0
    if left > 0 then
      left = went_at_once and left - 1 or PROBES
      if left == 0 then redis.call('HDEL', lanes.slow, text) else redis.call('HSET', lanes.slow, text, left) end
      wake_lane(lanes, text)
    end
    text = parent_of(text)
  end
end

-- Records the results of probes, and which keys may have room again.
local function apply_updates(lanes, updates)
  for _, probe in ipairs(updates.probes) do apply_probe(lanes, probe[1], probe[2]) end
  for _, key in ipairs(updates.ended) do wake_head(lanes, key) end
  for _, key in ipairs(updates.woken) do
    if key == '*' then
      -- Makes all blocked lanes due now. They are woken a limited number at a time.
      redis.call('ZUNIONSTORE', lanes.blocked, 1, lanes.blocked, 'WEIGHTS', 0)
    elseif redis.call('ZSCORE', lanes.blocked, key) then
      wake_lane(lanes, key)
    end
  end
end

-- Moves a job with a key from one of BullMQ's sets into its lane.
local function move_to_lane(lanes, id)
  redis.call('ZADD', lanes.delayed, (lanes.now_ms + DAY_MS) * 4096, id)
  join(lanes, id)
  lanes.is_changed = true
end

-- True if a job must run after another job that has not ended, or waits for its parents (lib/flows/hold). The job is
-- then delayed again. Usually jobs-follow starts it when the other job ends; this check covers lost messages.
local function is_held_back(lanes, id, after, awaits)
  if awaits then
    redis.call('ZADD', lanes.delayed, (lanes.now_ms + DAY_MS) * 4096, id)
    return true
  end
  if not after then return false end
  local waits = is_unended(lanes, after)
  if waits then redis.call('ZADD', lanes.delayed, (lanes.now_ms + FOLLOW_MS) * 4096, id)
  else redis.call('HDEL', lanes.jobs .. id, 'sluiceAfter') end
  return waits
end

-- Moves the jobs that have become due, after a delay, a retry or by a schedule. Returns their number.
local function move_due(lanes)
  local due = redis.call('ZRANGEBYSCORE', lanes.delayed, 0, (lanes.now_ms + 1) * 4096 - 1, 'LIMIT', 0, MOST_MOVED)
  for _, id in ipairs(due) do
    local job = lanes.jobs .. id
    local name, priority, after, awaits =
      unpack(redis.call('HMGET', job, 'name', 'priority', 'sluiceAfter', 'sluice:awaits'))
    local is_held = is_held_back(lanes, id, after, awaits)
    redis.call('HSET', job, 'delay', 0)
    if name and key_of(name) and not is_held then
      move_to_lane(lanes, id)
    elseif not is_held then
      redis.call('ZREM', lanes.delayed, id)
      if (tonumber(priority) or 0) == 0 then
        redis.call('LPUSH', lanes.wait, id)
      else
        -- Uses BullMQ's order: by priority, and then by a counter.
        local count = redis.call('INCR', lanes.counter)
        redis.call('ZADD', lanes.prioritized, priority * 2 ^ 32 + count % 2 ^ 32, id)
      end
      redis.call('XADD', lanes.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
    end
  end
  return #due
end

local function has_key(lanes, id)
  return key_of(redis.call('HGET', lanes.jobs .. id, 'name') or '') ~= nil
end

-- Returns the next job without a key, or false, and whether that job is in the list. The result is cached until that
-- job is fetched. Jobs with a key that are before it join their lanes.
local function first_keyless(lanes)
  if lanes.free_id ~= nil then return lanes.free_id, lanes.is_listed end
  lanes.free_id, lanes.is_listed, lanes.has_unmoved = false, false, true
  for _ = 1, MOST_MOVED do
    -- The list contains recovered jobs, and jobs that a tool has moved. No job joins the list while this script runs.
    local listed = lanes.has_listed ~= false and redis.call('LINDEX', lanes.wait, -1)
    lanes.has_listed = listed ~= false
    local id, place = listed, nil
    if not id then id, place = unpack(redis.call('ZRANGE', lanes.prioritized, 0, 0, 'WITHSCORES')) end
    if not id or not has_key(lanes, id) then
      lanes.free_id, lanes.is_listed, lanes.has_unmoved = id or false, listed ~= false, false
      lanes.free_score = place
      break
    end
    if listed then redis.call('RPOP', lanes.wait) else redis.call('ZREM', lanes.prioritized, id) end
    move_to_lane(lanes, id)
  end
  return lanes.free_id, lanes.is_listed
end

-- Makes a job active and locked for the calling worker, as BullMQ's fetch does. The reason is `how`: it is its turn
-- (1), it is a probe (2), or it has expired (3); plus 3 for a job of an ordered lane. Stores the position of a job
-- without a key, so that jobs-return can put it back there. Returns the job's fields; nil if it was removed.
local function activate(lanes, id, how, is_parked, place)
  local job, taken = lanes.jobs .. id, lanes.taken
  local fields, starts = redis.call('HGETALL', job), 0
  if #fields == 0 then return nil end
  for at = 1, #fields, 2 do
    if fields[at] == 'ats' then starts = tonumber(fields[at + 1]) end
  end
  local written = { 'processedOn', string.format('%.0f', lanes.now_ms), 'ats', starts + 1, 'delay', 0 }
  if place then written[7], written[8] = 'sluicePlace', place end
  redis.call('HSET', job, unpack(written))
  -- Appends the new values, because the last one counts if a field appears twice.
  for _, value in ipairs(written) do fields[#fields + 1] = tostring(value) end
  redis.call('LPUSH', lanes.active, id)
  redis.call('SET', job .. ':lock', lanes.token .. #taken / 3 + 1, 'PX', lanes.lock_ms)
  if is_parked then redis.call('XADD', lanes.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed') end
  redis.call('XADD', lanes.events, '*', 'event', 'active', 'jobId', id, 'prev', 'waiting')
  taken[#taken + 1], taken[#taken + 2], taken[#taken + 3] = id, how, fields
  return fields
end

-- Does the same for a job that is parked in BullMQ's delayed set.
local function activate_parked(lanes, id, how)
  return redis.call('ZREM', lanes.delayed, id) == 1 and activate(lanes, id, how, true) ~= nil
end

-- Fetches jobs whose deadline has passed, in any lane. A worker fails them, which uses no slot.
local function take_expired(lanes, most)
  if most < 1 or not has(lanes, 'deadlines') then return end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', lanes.deadlines, '-inf', lanes.now_ms, 'LIMIT', 0, most)) do
    local key = key_of(redis.call('HGET', lanes.jobs .. id, 'name') or '')
    local lane = key and lanes.lane .. key
    if lane and redis.call('ZREM', lane, id) == 1 then
      forget_job(lanes, id, key)
      if redis.call('EXISTS', lane) == 0 then forget_lane(lanes, key) end
    end
    redis.call('ZREM', lanes.deadlines, id)
    activate_parked(lanes, id, key and order_of(lanes, key) and 6 or 3)
  end
end

local function are_expired(lanes)
  if lanes.parked <= 0 or not has(lanes, 'deadlines') then return false end
  return redis.call('ZCOUNT', lanes.deadlines, '-inf', lanes.now_ms) > 0
end

-- Removes the next job from a lane and returns it. For an ordered lane, also returns what a dead letter does to the
-- lane, and when to check again while it waits for its head job.
local function next_in_lane(lanes, key)
  local lane, stuck, head = lanes.lane .. key, order_of(lanes, key)
  if not stuck or head == '' then return redis.call('ZPOPMIN', lane)[1], stuck end
  if redis.call('ZREM', lane, head) == 1 then return head, stuck end
  local until_ms = head_until_ms(lanes, stuck, head)
  if not until_ms then return redis.call('ZPOPMIN', lane)[1], stuck end
  -- The head job is retried immediately, or was replayed, so it is the next job.
  if redis.call('ZREM', lanes.prioritized, head) == 0 then return nil, stuck, until_ms end
  move_to_lane(lanes, head)
  redis.call('ZREM', lane, head)
  return head, stuck
end

-- Finds the path from the main line to the lane whose turn it is: for each line, { parent, first item, its tag }.
local function path_to_next(lanes, first, start)
  local way = { { '', first, start } }
  local parent = lanes.has_paths and first or nil
  while parent do
    local item, tag = unpack(redis.call('ZRANGE', line_of(lanes, parent), 0, 0, 'WITHSCORES'))
    if item then way[#way + 1] = { parent, item, tonumber(tag) } end
    parent = item ~= parent and item or nil
  end
  return way
end

-- True if a lane or a parent runs only one job at a time, as a probe. In a parent's line, the lane of the parent's
-- own jobs is not probed separately.
local function is_probed(lanes, text, parent)
  return text ~= parent and has(lanes, 'slow') and redis.call('HEXISTS', lanes.slow, text) == 1
end

-- Computes the positions of the lane and of each parent above it after a job of this share. Returns whether the job
-- is a probe of any of them.
local function plan_turns(lanes, way, share)
  local is_probe = false
  for _, step in ipairs(way) do
    local parent, item, start = unpack(step)
    step.finish, step.is_slow = start + share / weight_of(lanes, item, parent), is_probed(lanes, item, parent)
    is_probe = is_probe or step.is_slow
  end
  return is_probe
end

-- Puts an item that had its turn at its new position in the line, or removes it from the line.
local function end_turn(lanes, step, finish, stays)
  local parent, item = step[1], step[2]
  local line, had = line_of(lanes, parent), finish_of(lanes, parent)
  if stays then
    redis.call('ZADD', line, as_tag(finish), item)
    return
  end
  if parent == '' then redis.call('ZREMRANGEBYSCORE', had, '-inf', as_tag(lanes.v)) end
  redis.call('ZADD', had, as_tag(finish), item)
  redis.call('ZREM', line, item)
end

-- Fetches the next job of the lane whose turn it is; false if that job was removed. Also returns whether the first
-- item of the main line stays in it. A job that `is_before_turns` uses a turn only if its lane has not already used
-- one that is still to come.
local function take_from_lane(lanes, first, start, is_before_turns)
  local way = path_to_next(lanes, first, start)
  local own_line, key = unpack(way[#way])
  local id, stuck, until_ms = next_in_lane(lanes, key)
  if until_ms then
    leave_line(lanes, own_line, key)
    redis.call('ZADD', lanes.heads, string.format('%.0f', until_ms), key)
    return false, false
  end
  local is_probe = plan_turns(lanes, way, id and share_of(lanes, id) or 0)
  if is_before_turns and start > lanes.v then way[1].finish = start end
  local was_there = false
  if id then
    forget_job(lanes, id, key)
    was_there = activate_parked(lanes, id, (is_probe and 2 or 1) + (stuck and 3 or 0))
    if was_there and not is_before_turns then lanes.v = math.max(lanes.v, start) end
  end
  local is_empty = redis.call('EXISTS', lanes.lane .. key) == 0
  local has_head = stuck ~= nil and was_there
  local has_more = not is_empty and not has_head
  for at = #way, 1, -1 do
    local step = way[at]
    local tried = step.is_slow and was_there
    local stays = has_more and not tried
    end_turn(lanes, step, was_there and step.finish or step[3], stays)
    if has_more and tried then redis.call('ZADD', lanes.blocked, lanes.now_ms + PROBE_MS, step[2]) end
    has_more = stays or at > 1 and redis.call('EXISTS', line_of(lanes, step[1])) == 1
    if not has_more and at > 1 then redis.call('UNLINK', finish_of(lanes, step[1])) end
  end
  if has_head then set_head(lanes, key, stuck, id) end
  if is_empty then forget_lane(lanes, key) end
  return was_there, has_more
end

-- Fetches the next job without a key; false if it was removed.
local function take_keyless(lanes, id, is_listed, start)
  lanes.free_id = nil
  if is_listed then redis.call('RPOP', lanes.wait) else redis.call('ZREM', lanes.prioritized, id) end
  local fields, share = activate(lanes, id, 1, false, lanes.free_score), 1
  if not fields then return false end
  for at = 1, #fields, 2 do
    if fields[at] == 'opts' then share = share_in(fields[at + 1]) end
  end
  -- Tags are needed only while lanes have jobs.
  if lanes.parked > 0 then
    lanes.v, lanes.free, lanes.is_changed = math.max(lanes.v, start), start + share, true
  end
  return true
end

-- Moves the lane of a path to its parent's line, if an earlier build has put the lane into the main line.
local function move_to_line(lanes, key)
  redis.call('ZREM', lanes.ready, key)
  if redis.call('EXISTS', lanes.lane .. key) == 1 and not is_in_line(lanes, key) then make_ready(lanes, key) end
  return redis.call('EXISTS', lanes.ready) == 1
end

-- While no lane is in the main line, parents that are missing there are searched for at this interval.
local MEND_EVERY_MS = 1000

-- Takes no jobs below these first names.
local function leave_out(lanes, names)
  lanes.left_out, lanes.left_out_count = {}, #names
  for _, name in ipairs(names) do lanes.left_out[name] = true end
end

-- Returns the first item of the main line that is not left out, with its tag.
local function first_in_line(lanes)
  local count = lanes.left_out_count or 0
  local first = redis.call('ZRANGE', lanes.ready, 0, count, 'WITHSCORES')
  if count > 0 and first[1] then
    for at = 1, #first, 2 do
      if not lanes.left_out[first[at]] then return { first[at], first[at + 1] } end
      lanes.has_left_out = true
    end
    return {}
  end
  local is_due = lanes.has_paths and lanes.parked > 0 and lanes.now_ms - lanes.mended_at_ms >= MEND_EVERY_MS
  if first[1] or not is_due then return first end
  mend_lines(lanes)
  return redis.call('ZRANGE', lanes.ready, 0, 0, 'WITHSCORES')
end

-- Fetches jobs of keys with a floor before all turns. Returns their number. The bucket decides when they start.
local function take_floors(lanes, most)
  local before = #lanes.taken
  for _, floor in ipairs(lanes.floors or {}) do
    local name, left = floor[1], floor[2]
    local tag = parent_of(name) == '' and redis.call('ZSCORE', lanes.ready, name)
    while tag and left > 0 and (#lanes.taken - before) / 3 < most do
      take_from_lane(lanes, name, math.max(tonumber(tag), lanes.v), true)
      tag, left = redis.call('ZSCORE', lanes.ready, name), left - 1
    end
  end
  return (#lanes.taken - before) / 3
end

-- Fetches up to `most` jobs, each from the lane whose turn it is. Returns whether there may be more.
local function take(lanes, most)
  local gone, is_lane_ready = 0, false
  local left = most - take_floors(lanes, most)
  while gone < MOST_GONE do
    -- Comes before the lanes are read, because it may move jobs into them.
    local id, is_listed = first_keyless(lanes)
    if left <= 0 and (id or is_lane_ready) then return true end
    local first = first_in_line(lanes)
    if not id and not first[1] then return lanes.has_unmoved end
    if left <= 0 then return true end
    -- A lane that was left out earns no credit.
    local start, free_start = first[2] and math.max(tonumber(first[2]), lanes.v), math.max(lanes.v, lanes.free)
    local was_there
    if id and (not start or free_start <= start) then
      was_there = take_keyless(lanes, id, is_listed, free_start)
    elseif parent_of(first[1]) ~= '' then
      was_there, is_lane_ready = false, move_to_line(lanes, first[1])
    else
      was_there, is_lane_ready = take_from_lane(lanes, first[1], start)
    end
    if was_there then left = left - 1 else gone = gone + 1 end
  end
  return true
end

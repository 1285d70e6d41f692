-- @include lib/lanes/lane-keys
-- Lanes take turns in lines. Lanes of keys with one name are in the main line (`ready`). Lanes of a path are in the
-- line of its parent (`ready:<parent>`), and the parent is in the line above. So each parent gets its turn, however
-- many lanes are below it, and these lanes take turns among themselves. The lane of a parent's own jobs is also in
-- the parent's line, while that line exists. Scores are virtual times within one line. `finish` keeps the scores of
-- lanes that left a line while other lanes are in it.

-- Separates the names of a path (src/core/key-path.ts).
local SEPARATOR = '\31'

-- Returns the parent: the path without its last name; '' if there is only one name.
local function parent_of(text)
  return string.match(text, '^(.*)' .. SEPARATOR) or ''
end

local function line_of(lanes, parent)
  return parent == '' and lanes.ready or lanes.ready .. ':' .. parent
end

local function finish_of(lanes, parent)
  return parent == '' and lanes.finish or lanes.finish .. ':' .. parent
end

local function as_tag(number)
  return string.format('%.17g', number)
end

-- Returns the parent in whose line a lane is, or would be.
local function parent_line_of(lanes, key)
  if lanes.has_paths and redis.call('EXISTS', line_of(lanes, key)) == 1 then return key end
  return parent_of(key)
end

-- True if jobs are parked below a parent.
local function has_below(lanes, text)
  return lanes.has_paths and redis.call('HEXISTS', lanes.below, text) == 1
end

-- Returns when the pause of a key or a parent ends, in ms since 1970; nil if it is not paused.
local function paused_until(lanes, text)
  local until_ms = lanes.paused_keys > 0 and tonumber(redis.call('ZSCORE', lanes.paused, text))
  return until_ms and until_ms > lanes.now_ms and until_ms or nil
end

-- Moves the lane of a parent's own jobs from the line above to the parent's line, next to the lanes below the parent.
local function admit_own_lane(lanes, parent)
  local line = line_of(lanes, parent)
  if redis.call('EXISTS', line) == 1 or not redis.call('ZSCORE', line_of(lanes, parent_of(parent)), parent) then return end
  if redis.call('EXISTS', lanes.lane .. parent) == 1 then redis.call('ZADD', line, 0, parent) end
end

-- Adds a lane or a parent to a line. Idle time earns no credit, and a debt remains. A new item starts at the current
-- virtual time. In the main line, this is where the last served lane began. In other lines, it is where the next lane
-- begins.
local function put_in_line(lanes, parent, item)
  local line, now = line_of(lanes, parent), lanes.v
  if parent ~= '' and item ~= parent then admit_own_lane(lanes, parent) end
  if parent ~= '' then now = tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2]) or 0 end
  local finish = tonumber(redis.call('ZSCORE', finish_of(lanes, parent), item)) or 0
  redis.call('ZADD', line, as_tag(math.max(now, finish)), item)
end

-- Adds a parent that has lanes in its line to the line above, unless the parent is blocked.
local function raise_parents(lanes, parent)
  while parent ~= '' do
    local above = parent_of(parent)
    if redis.call('ZSCORE', line_of(lanes, above), parent) then return end
    local paused_ms = paused_until(lanes, parent)
    if paused_ms then redis.call('ZADD', lanes.blocked, paused_ms, parent) end
    if paused_ms or redis.call('ZSCORE', lanes.blocked, parent) then return end
    put_in_line(lanes, above, parent)
    parent = above
  end
end

-- Adds a lane to its line. The lane of a paused key stays blocked, even if it is woken.
local function make_ready(lanes, key)
  local paused_ms = paused_until(lanes, key)
  if paused_ms then
    redis.call('ZADD', lanes.blocked, paused_ms, key)
    return
  end
  local parent = parent_line_of(lanes, key)
  put_in_line(lanes, parent, key)
  raise_parents(lanes, parent)
end

-- True if a lane is in a line, or is blocked until a known time.
local function is_in_line(lanes, key)
  local parent = parent_line_of(lanes, key)
  if redis.call('ZSCORE', line_of(lanes, parent), key) then
    -- Adds the parent again, because an earlier build without parents may have removed it from its line.
    raise_parents(lanes, parent)
    return true
  end
  return redis.call('ZSCORE', lanes.blocked, key) ~= false
end

-- Removes a lane or a parent from a line. If the line of a parent is empty then, removes the parent from the line
-- above.
local function leave_line(lanes, parent, item)
  local line, finish = line_of(lanes, parent), finish_of(lanes, parent)
  local tag = redis.call('ZSCORE', line, item)
  if not tag then return end
  redis.call('ZREM', line, item)
  if parent == '' or redis.call('EXISTS', line) == 1 then
    if parent ~= '' or tonumber(tag) > lanes.v then redis.call('ZADD', finish, tag, item) end
    return
  end
  redis.call('UNLINK', finish)
  leave_line(lanes, parent_of(parent), parent)
end

-- Adds missing parents to their lines again: an earlier build takes a parent for an empty lane and removes it. Checks
-- a limited number of parents each time.
local MENDED_HEADS = 100
local function mend_lines(lanes)
  local cursor, found = unpack(redis.call('HSCAN', lanes.below, lanes.mended, 'COUNT', MENDED_HEADS))
  for at = 1, #found, 2 do
    if redis.call('EXISTS', line_of(lanes, found[at])) == 1 then raise_parents(lanes, found[at]) end
  end
  lanes.mended, lanes.mended_at_ms = cursor, lanes.now_ms
  redis.call('HSET', lanes.state, 'mended', cursor, 'mendedAt', string.format('%.0f', lanes.now_ms))
end

-- @include lib/lanes/names
-- Where lanes stand in line. Those of one name stand in the line of all (`ready`); those of a path in the line of its head
-- (`ready:<head>`), and the head in the line above. So heads take turns, however many lanes each has below it, and inside
-- a head its lanes do. The lane of a head's own jobs stands in the head's line, too, while there is one. Tags are virtual
-- times of one line; `finish` keeps those of who has left it, while others stand there.

-- Between the names of a path (src/core/key-path.ts).
local BETWEEN = '\31'

-- A path without its last name; '' for one name.
local function head_of(text)
  return string.match(text, '^(.*)' .. BETWEEN) or ''
end

local function line_of(lanes, head)
  return head == '' and lanes.ready or lanes.ready .. ':' .. head
end

local function finish_of(lanes, head)
  return head == '' and lanes.finish or lanes.finish .. ':' .. head
end

local function as_tag(number)
  return string.format('%.17g', number)
end

-- In whose line a lane stands, or would.
local function stands_with(lanes, key)
  if lanes.has_paths and redis.call('EXISTS', line_of(lanes, key)) == 1 then return key end
  return head_of(key)
end

-- Whether jobs are parked below a head.
local function has_below(lanes, text)
  return lanes.has_paths and redis.call('HEXISTS', lanes.below, text) == 1
end

-- Until when a key or a head is paused, in ms since 1970; nil if it is not.
local function paused_until(lanes, text)
  local until_ms = lanes.paused_keys > 0 and tonumber(redis.call('ZSCORE', lanes.paused, text))
  return until_ms and until_ms > lanes.now_ms and until_ms or nil
end

-- The lane of the head's own jobs, which stood in the line above by itself, goes on with those below.
local function admit_own_lane(lanes, head)
  local line = line_of(lanes, head)
  if redis.call('EXISTS', line) == 1 or not redis.call('ZSCORE', line_of(lanes, head_of(head)), head) then return end
  if redis.call('EXISTS', lanes.lane .. head) == 1 then redis.call('ZADD', line, 0, head) end
end

-- Puts a lane or a head at its place in a line. Who was away saves up no credit, and keeps the debt that it had then. The
-- time of the line of all is where the one that was served last began; that of another, where its next one begins.
local function stand(lanes, head, item)
  local line, now = line_of(lanes, head), lanes.v
  if head ~= '' and item ~= head then admit_own_lane(lanes, head) end
  if head ~= '' then now = tonumber(redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')[2]) or 0 end
  local finish = tonumber(redis.call('ZSCORE', finish_of(lanes, head), item)) or 0
  redis.call('ZADD', line, as_tag(math.max(now, finish)), item)
end

-- Sees to it that a head with a line stands in the line above, unless it is aside.
local function raise(lanes, head)
  while head ~= '' do
    local above = head_of(head)
    if redis.call('ZSCORE', line_of(lanes, above), head) then return end
    local paused_ms = paused_until(lanes, head)
    if paused_ms then redis.call('ZADD', lanes.blocked, paused_ms, head) end
    if paused_ms or redis.call('ZSCORE', lanes.blocked, head) then return end
    stand(lanes, above, head)
    head = above
  end
end

-- Puts a lane in line. That of a paused key stays aside, whoever wakes it.
local function make_ready(lanes, key)
  local paused_ms = paused_until(lanes, key)
  if paused_ms then
    redis.call('ZADD', lanes.blocked, paused_ms, key)
    return
  end
  local head = stands_with(lanes, key)
  stand(lanes, head, key)
  raise(lanes, head)
end

-- Whether a lane is in line, or aside until its time comes.
local function is_in_line(lanes, key)
  local head = stands_with(lanes, key)
  if redis.call('ZSCORE', line_of(lanes, head), key) then
    -- An earlier build, which knows no heads, may have taken its head out.
    raise(lanes, head)
    return true
  end
  return redis.call('ZSCORE', lanes.blocked, key) ~= false
end

-- Takes a lane or a head out of a line; a head whose line is empty then leaves the line above.
local function leave_line(lanes, head, item)
  local line, finish = line_of(lanes, head), finish_of(lanes, head)
  local tag = redis.call('ZSCORE', line, item)
  if not tag then return end
  redis.call('ZREM', line, item)
  if head == '' or redis.call('EXISTS', line) == 1 then
    if head ~= '' or tonumber(tag) > lanes.v then redis.call('ZADD', finish, tag, item) end
    return
  end
  redis.call('UNLINK', finish)
  leave_line(lanes, head_of(head), head)
end

-- Puts a head in line that has dropped out of it: an earlier build takes it for an empty lane. Some at a time, in turns.
local MENDED_HEADS = 100
local function mend_lines(lanes)
  local cursor, found = unpack(redis.call('HSCAN', lanes.below, lanes.mended, 'COUNT', MENDED_HEADS))
  for at = 1, #found, 2 do
    if redis.call('EXISTS', line_of(lanes, found[at])) == 1 then raise(lanes, found[at]) end
  end
  lanes.mended, lanes.mended_at_ms = cursor, lanes.now_ms
  redis.call('HSET', lanes.state, 'mended', cursor, 'mendedAt', string.format('%.0f', lanes.now_ms))
end

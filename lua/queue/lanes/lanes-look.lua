--[[
  lanes-look: reads the lanes of a queue, and where jobs are in them. Changes nothing.

  KEYS  [1] wait  [2] delayed  [3] prioritized  [4] active, all BullMQ's  [5] hash: the live workers
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the job that is asked about, "" if none
        [3] most_lanes: the most lanes to read  [4] most_deadlines: the most jobs with a deadline to read
        [5] counted: of how many jobs in lanes, of how many that workers hold, and of how many others, to read the cost
  Reply JSON: { lanes: [key, jobs, weight, ms for which it is still aside, calls], others: { lanes, jobs },
        heads: [head of a path, weight, ms for which it is still aside],
        waiting: [jobs without a lane, and delayed ones that are due, calls], deadlines: [id, key, jobs before it, ms until then, calls],
        job: [key, jobs before it in its lane, calls]; or [key, -1, jobs before it of all that wait, calls]; or
        [key, -2, ms until it is due, jobs that would go before it now, calls]; or [key, -3, 0]: it runs; or [key, -4,
        jobs before it of those that workers hold of its key, calls]; due: lists of ms until then and [key, jobs, calls]
        of the delayed jobs that come due before it, and more: how many others do }; calls: how many plain calls they are
]]
-- @include lib/now-ms
-- @include lib/lanes/line
-- @include lib/lanes/look/fetched-jobs
-- @include lib/lanes/look/read-lanes
-- @include lib/lanes/look/due-before
-- @include lib/lanes/look/next-deadlines

local prefix, asked = ARGV[1], ARGV[2]
local lanes, now = lane_names(prefix), now_ms()
local most, counted = tonumber(ARGV[3]), tonumber(ARGV[5])
local held = held_by_workers(lanes, prefix, KEYS[4], KEYS[5], counted)
local waiting_sums = sums_of_waiting(prefix, KEYS[1], KEYS[3], counted, joins_held(held))
local has_shares = counted > 0 and redis.call('EXISTS', lanes.shares) == 1
local sums, most_each = {}, nil
local read = open_reading(lanes, held, most, now, function(key)
  if has_shares then sums[key] = sums_of_lane(lanes, key, most_each) end
  return sums[key]
end)
most_each = math.ceil(counted / math.max(1, math.min(read.others.lanes, most)))
read.line(lanes.ready)
if #read.list < most then read.line(lanes.blocked, now) end
if #read.list < most then read.line(lanes.heads) end
for key in pairs(held.lanes) do
  if key ~= '' and not read.is_read[key] then read.lane(key, 0) end
end
local listed, ranked = redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[3])
-- The next worker that looks moves them to their lanes.
local is_due = redis.call('ZCOUNT', KEYS[2], '-inf', now * 4096 + 4095)

local function place_of(id)
  local name, ended = unpack(redis.call('HMGET', prefix .. id, 'name', 'finishedOn'))
  if not name or ended then return nil end
  local key = key_of(name)
  local rank = key and redis.call('ZRANK', lanes.lane .. key, id)
  if rank then return { key, with_held(held, key, rank, sums[key]) } end
  if held.places[id] then return held.places[id] end
  local before = redis.call('LPOS', KEYS[1], id)
  if before then before = listed - 1 - before else
    rank = redis.call('ZRANK', KEYS[3], id)
    before = rank and listed + rank
  end
  if before then return { key or '', -1, with_held(held, '', before, waiting_sums) } end
  local due = redis.call('ZSCORE', KEYS[2], id)
  if due then
    before, due = more_urgent(lanes, prefix, KEYS[3], id, key) + (key and 0 or listed), math.floor(tonumber(due) / 4096)
    return { key or '', -2, math.max(0, due - now), with_held(held, key or '', before, key and sums[key] or waiting_sums) }
  end
  return { key or '', -3, 0 }
end

local job = asked ~= '' and place_of(asked) or nil
local due, more = {}, 0
if job and job[2] == -2 and counted > 0 then due, more = due_before(lanes, prefix, KEYS[2], asked, now) end
return cjson.encode({
  lanes = read.list, heads = read.all_heads(), others = read.others, job = job, due = due, more = more,
  deadlines = next_deadlines(lanes, tonumber(ARGV[4]), now, place_of),
  waiting = { with_held(held, '', listed + ranked + is_due - held.joined, waiting_sums) },
})

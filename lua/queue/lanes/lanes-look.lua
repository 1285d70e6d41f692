--[[
  lanes-look: reads the lanes of a queue, and the positions of jobs in them. Changes nothing.

  KEYS  [1] wait  [2] delayed  [3] prioritized  [4] active, all BullMQ's  [5] hash: the live workers
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the job to find, "" for none
        [3] most_lanes: the most lanes to read  [4] most_deadlines: the most jobs with a deadline to read
        [5] counted: the most jobs whose cost is read, separately in lanes, among jobs held by workers, and among the
            others
  Reply JSON, with these fields. In all of them, "calls" is the cost of the jobs, in plain calls.
        Field lanes: [key, jobs, weight, ms for which it is blocked, calls].
        Field others: { lanes, jobs } that were not read.
        Field heads: [parent key, weight, ms for which it is blocked].
        Field waiting: [jobs without a lane and due delayed jobs, calls].
        Field deadlines: [id, key, jobs before it, ms until then, calls].
        Field job: for a job in a lane, [key, jobs before it, calls]. Otherwise its second value is a state.
            Waiting to be fetched: [key, -1, jobs before it, calls]. Delayed: [key, -2, ms until it is due, jobs that
            would go before it now, calls]. Running: [key, -3, 0]. Held by a worker: [key, -4, jobs of its key before
            it, calls].
        Field due: the delayed jobs that come due before it: groups of ms until then, and lists of [key, jobs, calls].
        Field more: how many further jobs come due before it.
]]
-- @include lib/time/now-ms
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
-- Due jobs stay in the delayed set until the next fetch of a worker moves them to their lanes.
local is_due = redis.call('ZCOUNT', KEYS[2], '-inf', now * 4096 + 4095)

local function location_of(id)
  local name, ended = unpack(redis.call('HMGET', prefix .. id, 'name', 'finishedOn'))
  if not name or ended then return nil end
  local key = key_of(name)
  local rank = key and redis.call('ZRANK', lanes.lane .. key, id)
  if rank then return { key, with_held(held, key, rank, sums[key]) } end
  if held.positions[id] then return held.positions[id] end
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

local job = asked ~= '' and location_of(asked) or nil
local due, more = {}, 0
if job and job[2] == -2 and counted > 0 then due, more = due_before(lanes, prefix, KEYS[2], asked, now) end
return cjson.encode({
  lanes = read.list, heads = read.all_parents(), others = read.others, job = job, due = due, more = more,
  deadlines = next_deadlines(lanes, tonumber(ARGV[4]), now, location_of),
  waiting = { with_held(held, '', listed + ranked + is_due - held.joined, waiting_sums) },
})

--[[
  lanes-look: reads the lanes of a queue, and where jobs are in them. Changes nothing.

  KEYS  [1] wait  [2] delayed  [3] prioritized  [4] active, all BullMQ's  [5] hash: the workers, and what they want
  ARGV  [1] the prefix of the queue's keys  [2] the job that is asked about, "" if none  [3] the most lanes to read
        [4] the most jobs with a deadline to read  [5] of how many jobs in lanes, of how many that workers hold, and
        of how many others, to read the cost
  Reply JSON: { lanes: [key, jobs, weight, ms for which it is still aside, calls], others: { lanes, jobs },
        waiting: [jobs without a lane, calls], deadlines: [id, key, jobs before it, ms until then, calls],
        job: [key, jobs before it in its lane, calls]; or [key, -1, jobs before it of all that wait, calls]; or
        [key, -2, ms until it is due, jobs that would go before it now, calls]; or [key, -3, 0]: it runs; or [key, -4,
        jobs before it of those that workers hold of its key, calls]; due: lists of ms until then and [key, jobs, calls]
        of the delayed jobs that come due before it, and more: how many others do }; calls: how many plain calls they are
]]
-- @include lib/now-ms
-- @include lib/lanes/names
-- @include lib/lanes/look/fetched-jobs
-- @include lib/lanes/look/due-before
-- @include lib/lanes/look/next-deadlines

local prefix, asked = ARGV[1], ARGV[2]
local lanes, now = lane_names(prefix), now_ms()
local read, most, counted = {}, tonumber(ARGV[3]), tonumber(ARGV[5])
local held = held_by_workers(lanes, prefix, KEYS[4], KEYS[5], counted)
local waiting_sums = sums_of_waiting(prefix, KEYS[1], KEYS[3], counted, joins_held(held))
local all_lanes = redis.call('ZCARD', lanes.ready) + redis.call('ZCARD', lanes.blocked) + redis.call('ZCARD', lanes.heads)
local has_shares = counted > 0 and redis.call('EXISTS', lanes.shares) == 1
local most_each = math.ceil(counted / math.max(1, math.min(all_lanes, most)))
local sums, is_read = {}, {}
local others = { lanes = all_lanes, jobs = tonumber(redis.call('HGET', lanes.state, 'parked')) or 0 }
local function read_lane(key, aside_ms)
  local parked = redis.call('ZCARD', lanes.lane .. key)
  if has_shares then sums[key] = sums_of_lane(lanes, key, most_each) end
  local jobs, calls = with_held(held, key, parked, sums[key])
  local weight = tonumber(redis.call('HGET', lanes.weights, key)) or 1
  read[#read + 1] = { key, jobs, weight, aside_ms, calls }
  others.jobs, is_read[key] = others.jobs - parked, true
end
local function read_lanes(names, at_or_now)
  local all = redis.call('ZRANGE', names, 0, most - 1 - #read, 'WITHSCORES')
  others.lanes = others.lanes - #all / 2
  for at = 1, #all, 2 do read_lane(all[at], at_or_now and math.max(0, tonumber(all[at + 1]) - at_or_now) or 0) end
end
read_lanes(lanes.ready)
if #read < most then read_lanes(lanes.blocked, now) end
if #read < most then read_lanes(lanes.heads) end
for key in pairs(held.lanes) do
  if key ~= '' and not is_read[key] then read_lane(key, 0) end
end
local listed, ranked = redis.call('LLEN', KEYS[1]), redis.call('ZCARD', KEYS[3])

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
  lanes = read, others = others, job = job, due = due, more = more,
  deadlines = next_deadlines(lanes, tonumber(ARGV[4]), now, place_of),
  waiting = { with_held(held, '', listed + ranked - held.joined, waiting_sums) },
})

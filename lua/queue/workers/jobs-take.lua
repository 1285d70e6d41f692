--[[
  jobs-take: fetches the next jobs for the calling worker. The jobs are active and locked, as after BullMQ's own
  fetch. take() in lib/lanes/take.lua chooses them. The worker also reports the results of probes, and which keys may
  have room again.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] active  [7] prioritized  [8] pc, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] most: how many jobs the worker can start soon
        [3] most_expired: how many jobs past their deadline it takes in addition  [4] lock_ms: ms for which locks last
        [5] token: the beginning of the locks' tokens; a number follows, from 1 on
        [6] updates: "" or JSON: { probes, ended, woken, full, floors }. Probes that have started: [key, whether the probe
            got its slot immediately]. Ended: keys of ordered lanes whose head job has ended or is retried. Woken: keys
            that may have room again, "*" for all. Full: first names of keys of which the worker takes no jobs now.
            Floors: [first name of a key, how many of its jobs are fetched before all turns].
  Reply [1] now, in ms since 1970  [2] how many jobs are parked  [3] how many jobs workers hold, at least
        [4] ms until there may be another job: 0 if there may be one now, -1 if none is known.
        [5] 1 if more jobs have come due or expired than were checked  [6] 1 if the queue is paused
        [7] the version of the data that jobs-orders reads.  [8] 1 if jobs of the queue have had parents or children
        [9…] for each job its id, why it was fetched, and its hash. Why: 1 it is its turn, 2 it tests alone
            whether its key has room, 3 its deadline has passed; plus 3 for a job of an ordered lane.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/take
-- @include lib/lanes/pauses/pauses

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.active, lanes.prioritized, lanes.counter = KEYS[6], KEYS[7], KEYS[8]
lanes.lock_ms, lanes.token, lanes.taken = ARGV[4], ARGV[5], {}
local most, most_expired = tonumber(ARGV[2]), tonumber(ARGV[3])

if ARGV[6] ~= '' then
  local updates = cjson.decode(ARGV[6])
  apply_updates(lanes, updates)
  leave_out(lanes, updates.full or {})
  lanes.floors = updates.floors or {}
end
local moved = move_due(lanes)
if lanes.parked > 0 then
  wake_due_lanes(lanes)
  wake_some_lanes(lanes)
end
if lanes.is_ordered then wake_due_heads(lanes) end
local pause, at_once = unpack(redis.call('HMGET', lanes.meta, 'paused', 'concurrency'))
local paused, paused_for_ms = end_due_pauses(lanes, pause)
if at_once then most = math.min(most, math.max(0, tonumber(at_once) - redis.call('LLEN', lanes.active))) end
local has_more = false
if not paused then
  has_more = take(lanes, most)
  take_expired(lanes, most_expired)
end
local more_due = moved == MOST_MOVED and 1 or 0
if not paused and are_expired(lanes) then more_due = 1 end
if lanes.is_changed then close_lanes(lanes) end
-- The queue's limit of active jobs is reached. No message is sent when another job may start, so the worker checks
-- again soon.
local is_full = at_once and redis.call('LLEN', lanes.active) >= tonumber(at_once)
local is_some_left = lanes.has_left_out and #lanes.taken > 0
if (has_more or is_some_left) and not is_full then redis.call('ZADD', lanes.marker, 0, '0') end

local next_ms = -1
local function first_at(zset, unit)
  local first = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')
  local at_ms = first[2] and tonumber(first[2]) / unit
  local in_ms = at_ms and at_ms < FOREVER_MS and math.max(0, math.ceil(at_ms - lanes.now_ms))
  if in_ms and (next_ms < 0 or in_ms < next_ms) then next_ms = in_ms end
end
if more_due == 1 or has_more and not is_full then next_ms = 0 elseif is_full then next_ms = FULL_MS elseif lanes.has_left_out then next_ms = LEFT_OUT_MS end
if paused_for_ms and next_ms ~= 0 then next_ms = paused_for_ms end
if not paused and next_ms ~= 0 then
  first_at(lanes.delayed, 4096)
  if lanes.is_ordered then first_at(lanes.heads, 1) end
  if lanes.parked > 0 then
    first_at(lanes.blocked, 1)
    if has(lanes, 'deadlines') then first_at(lanes.deadlines, 1) end
  end
end
-- Jobs that this worker has just fetched count as held.
local held = #lanes.taken > 0 and #lanes.taken / 3 or redis.call('LLEN', lanes.active)
return { lanes.now_ms, lanes.parked, held, next_ms, more_due, paused and 1 or 0, lanes.orders,
  lanes.has_flows and 1 or 0, unpack(lanes.taken) }

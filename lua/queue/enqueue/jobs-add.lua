--[[
  jobs-add: stores new jobs in their order. Some may have an id or a dedupeId that another job already has. If there
  would be too many pending jobs, it stores none of the new jobs. A job of an outbox row is stored only once, even after
  the job has ended and was removed.

  KEYS  all BullMQ's: [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized  [7] active  [8] pc
        [9] id; then ours: [10] rows: zset of the outbox rows that were stored, by the ms since 1970 of the latest
        attempt to store them, expires
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] request: JSON: { most, untilMs, jobs }. After untilMs, in ms since 1970, nothing is stored. Most is { all, perKey }: the most pending jobs in total and per key;
            without it, there is no limit. Each job is { id, name, opts as JSON, timestamp, delay, priority, isParked,
            weights, dedupe, keep, row, flow, children }. The id is set if the application chose it. A job with isParked joins its lane, with
            weights as in lanes-join. The dedupe is { id, mode: first, last, again or debounce, ttl in ms, waitMs, mostMs,
            cancels }. A debounced job has waitMs, and may have mostMs, the longest delay. With cancels, the running job
            is cancelled. The keep is { mode: newest or oldest, most }: at most that many jobs of the key wait. The row is
            the id of the job's outbox row, if it comes from an outbox. A job that waits for parents has a flow, as in
            store_flow() of lib/flows/hold. The children are the jobs that wait for the job, as
            "<queue>:<id>".
        [3…] json: the data of each job, as JSON
  Reply without room: the number of pending jobs, the exceeded limit, and its key, "" for all. Otherwise three values
        for each job: its id; 1 if it is new, else 0; and the stored hash of a job that is not new. The hash is
        empty if the job is no longer kept, and 0 if the hashes before it are large.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/weights
-- @include lib/enqueue/add

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.prioritized, lanes.active, lanes.counter, lanes.ids, lanes.rows = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]

-- The most characters of stored hashes in a reply. The hash that exceeds this number is still added.
local MOST_CHARACTERS = 4000000

-- How long the ids of outbox rows are kept if the outbox stores nothing more.
local ROWS_KEPT_MS = 90 * 86400000

local given, reply = cjson.decode(ARGV[2]), {}
if given.untilMs and lanes.now_ms > given.untilMs then
  return redis.error_reply('LATE the relay stored these outbox rows too late; it reads them again')
end
lanes.bounds_keys = given.most and given.most.perKey
local full = given.most and is_full(lanes, given.most, given.jobs)
if full then return full end
local characters = 0
local function read(id)
  if characters > MOST_CHARACTERS then return 0 end
  local fields = redis.call('HGETALL', lanes.jobs .. id)
  for _, field in ipairs(fields) do characters = characters + #field end
  return fields
end

for at, job in ipairs(given.jobs) do
  job.data = ARGV[at + 2]
  local id, is_new = add(lanes, job)
  reply[#reply + 1], reply[#reply + 2] = id, is_new and 1 or 0
  reply[#reply + 1] = is_new and {} or read(id)
end
if lanes.has_rows then redis.call('PEXPIRE', lanes.rows, ROWS_KEPT_MS) end
if lanes.has_joined then close_lanes(lanes) end
if lanes.is_waiting then announce(lanes) end
return reply

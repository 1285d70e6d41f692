--[[
  jobs-left: counts the jobs that could run now or soon, for a worker that closes once there are none. Changes nothing.

  KEYS  as in lanes-join, then [6] prioritized  [7] active, BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] soon_ms: a delayed job that is due within this many ms counts as one that could run
        [3] page: which blocked lanes to look at: "" for the first page; else as in the reply
  Reply [1] how many jobs could run, besides [2]: held by any worker, due, or due soon. Jobs that are due soon count as
            one.
        [2] how many due jobs may be blocked: those in lanes; all, if the queue is paused for longer than soon_ms
        [3] how many of them cannot run, on this page: their queue or key is paused for longer than soon_ms. Jobs of an
            ordered lane count too if they wait for a dead letter, or for a job that is retried later. 0 if [1] is not.
        [4] how many jobs are due later: delayed jobs, retries and the next runs of schedules
        [5] the next page; "" after the last one
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/pauses/pause-left
-- @include lib/lanes/states/unbegun
-- @include lib/lanes/look/blocked-jobs

-- The most delayed jobs to look at, because Redis is blocked during the look.
local MOST_LOOKED = 1000
-- The delay of a job that is on its way to its lane (PARK_MS in src/queue/bullmq/stored-job.ts).
local PARK_MS = 10000
local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local now, soon_ms = lanes.now_ms, tonumber(ARGV[2])
local meta, prioritized, active = KEYS[4], KEYS[6], redis.call('LLEN', KEYS[7])
local waiting = redis.call('LLEN', lanes.wait) + redis.call('ZCARD', prioritized)
local later = math.max(0, redis.call('ZCARD', lanes.delayed) - lanes.parked)

local function is_soon(id, due_ms)
  local name, delay, after = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'delay', 'sluiceAfter'))
  local key = name and key_of(name)
  if not name or key and redis.call('ZSCORE', lanes.lane .. key, id) then return false end
  -- A job is looked for beyond soon_ms if it only waits for a message, which may be lost.
  if due_ms > now + soon_ms and not after and delay ~= string.format('%.0f', PARK_MS) then return false end
  local schedule = string.match(id, '^repeat:([^:]+):%d+$')
  return due_ms <= now or not schedule or has_begun_as_run(lanes, id, schedule)
end

local function has_soon()
  local last = string.format('%.0f', (now + math.max(soon_ms, PARK_MS)) * 4096 + 4095)
  local due = redis.call('ZRANGEBYSCORE', lanes.delayed, '-inf', last, 'WITHSCORES', 'LIMIT', 0, MOST_LOOKED)
  for at = 1, #due, 2 do
    if is_soon(due[at], math.floor(tonumber(due[at + 1]) / 4096)) then return true end
  end
  return #due == 2 * MOST_LOOKED
end

local pause_ms, soon = queue_pause_left(meta, now), has_soon() and 1 or 0
if pause_ms < 0 or pause_ms > soon_ms then
  local held = waiting + lanes.parked
  return { active, held, held, later, '' }
end
local runnable, blocked, next_page = active + waiting + soon, 0, ''
if runnable == 0 and lanes.parked > 0 then
  blocked, next_page = blocked_jobs(lanes, soon_ms, ARGV[3] == '' and 'paused 0' or ARGV[3])
end
return { runnable, lanes.parked, blocked, math.max(0, later - soon), next_page }

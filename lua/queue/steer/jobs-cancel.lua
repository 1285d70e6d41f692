--[[
  jobs-cancel: cancels a job. No worker begins the job after this. A worker that runs it is notified by jobs-orders.

  KEYS  [1] the job  [2] its lock  [3] completed  [4] failed  [5] delayed  [6] prioritized  [7] events, all BullMQ's
        [8] the state of the lanes: hash  [9] the locks of cancelled jobs: zset, kept for an hour
        [10] notifies processes that await the job of its cancellation: string, kept for ten minutes
  ARGV  [1] id: the job's id
  Reply 0 the job has ended or does not exist; 1 it is pending, and the caller removes it; 2 a worker holds it; 3 it
        is the next run of its schedule
]]
-- @include lib/time/now-ms
-- @include lib/lanes/states/cancelled

local job, lock, completed, failed, delayed, prioritized, events, state, locks, mark = unpack(KEYS)
local id = ARGV[1]
if redis.call('EXISTS', job) == 0 then return 0 end
if redis.call('ZSCORE', completed, id) or redis.call('ZSCORE', failed, id) then return 0 end
local waits = redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', prioritized, id)
local schedule = waits and redis.call('HGET', job, 'rjk')
-- Replies that a run is the next run of its schedule, unless the run is open. An open run has begun before and waits
-- for its next attempt.
if schedule then
  local open = string.sub(job, 1, -1 - #id) .. 'repeat:' .. schedule .. ':open'
  if redis.call('HEXISTS', open, id) == 0 then return 3 end
end
redis.call('HSET', job, CANCELLED, 1)
local token = not waits and redis.call('GET', lock)
if not token then
  publish_cancelled(events, mark, id)
  return 1
end
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', locks, '-inf', now - 3600000)
redis.call('ZADD', locks, now, token .. ' ' .. id)
redis.call('PEXPIRE', locks, 3600000)
redis.call('HINCRBY', state, 'orders', 1)
return 2

--[[
  jobs-cancel: cancels a job. From now on no worker begins it. A worker that runs it learns of this by jobs-orders.

  KEYS  [1] the job  [2] its lock  [3] completed  [4] failed  [5] delayed  [6] prioritized  [7] events, all BullMQ's
        [8] the state of the lanes: hash  [9] the locks of cancelled jobs: zset, kept for an hour
        [10] the mark for processes that await the job's end: string, kept for ten minutes
  ARGV  [1] id: the job's id
  Reply 0 it has ended or is gone; 1 it is pending, and the caller removes it; 2 a worker has it; 3 it is the next run of
        its schedule
]]
-- @include lib/now-ms
-- @include lib/lanes/states/cancelled

local job, lock, completed, failed, delayed, prioritized, events, state, locks, mark = unpack(KEYS)
local id = ARGV[1]
if redis.call('EXISTS', job) == 0 then return 0 end
if redis.call('ZSCORE', completed, id) or redis.call('ZSCORE', failed, id) then return 0 end
local waits = redis.call('ZSCORE', delayed, id) or redis.call('ZSCORE', prioritized, id)
local schedule = waits and redis.call('HGET', job, 'rjk')
-- A run that waits for its next attempt is open in its schedule.
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

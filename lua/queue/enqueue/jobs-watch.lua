--[[
  jobs-watch: checks whether a worker has fetched a due job. If not, it wakes another worker, because the worker that
  was woken for the job may hang.

  KEYS  [1] the job  [2] its lock  [3] delayed  [4] marker  [5] meta, all BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the job's id
  Reply 0 the job was fetched, does not exist, or is not due; 1 another worker was woken; 2 the job is pending, and no
        worker waits for jobs
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lane-keys

local job, lock, delayed, marker, meta, prefix, id = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[1], ARGV[2]
local name, ended = unpack(redis.call('HMGET', job, 'name', 'finishedOn'))
if not name or ended or redis.call('EXISTS', lock) == 1 then return 0 end
local score, key = redis.call('ZSCORE', delayed, id), key_of(name)
local is_later = score and tonumber(score) / 4096 > now_ms() + 1
-- A parked job is due although its score in the delayed set is a day ahead.
if is_later and not (key and redis.call('ZSCORE', lane_names(prefix).lane .. key, id)) then return 0 end
-- Wakes no worker if the queue is paused, or if the marker still exists. A worker that waits for jobs would have
-- removed the marker.
if redis.call('EXISTS', marker) == 1 or redis.call('HEXISTS', meta, 'paused') == 1 then return 2 end
redis.call('ZADD', marker, 0, '0')
return 1

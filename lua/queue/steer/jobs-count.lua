--[[
  jobs-count: counts the jobs of a queue by state, all at one moment. Changes nothing.

  KEYS  [1] wait  [2] prioritized  [3] active  [4] delayed  [5] completed  [6] failed  [7] the state of the lanes
  ARGV  none
  Reply the numbers of waiting, running, delayed, done and failed jobs. Jobs parked in lanes count as waiting,
        although BullMQ stores them as delayed.
]]
local parked = tonumber(redis.call('HGET', KEYS[7], 'parked') or 0)
local waiting = redis.call('LLEN', KEYS[1]) + redis.call('ZCARD', KEYS[2]) + parked
local delayed = math.max(0, redis.call('ZCARD', KEYS[4]) - parked)
return { waiting, redis.call('LLEN', KEYS[3]), delayed, redis.call('ZCARD', KEYS[5]), redis.call('ZCARD', KEYS[6]) }

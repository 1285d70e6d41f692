--[[
  jobs-begin: records the deadline that a job has kept by starting, if the job is there.

  KEYS  [1] the job, BullMQ's: hash
  ARGV  [1] ms since 1970 by which it had to start
  Reply 1 if the job was there, else 0
]]
local job, start_by_ms = KEYS[1], ARGV[1]
if redis.call('EXISTS', job) == 0 then return 0 end
redis.call('HSET', job, 'sluice:begun', start_by_ms)
return 1

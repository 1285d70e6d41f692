--[[
  jobs-begin: notes which deadline a job has kept by beginning, as long as the job is there.

  KEYS  [1] the job, BullMQ's: hash
  ARGV  [1] ms since 1970 by which it had to begin
  Reply 1 if the job was there, else 0
]]
local job, start_by_ms = KEYS[1], ARGV[1]
if redis.call('EXISTS', job) == 0 then return 0 end
redis.call('HSET', job, 'sluice:begun', start_by_ms)
return 1

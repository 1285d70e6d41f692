--[[
  jobs-begin: records that a job starts, if the job exists.

  KEYS  [1] the job, BullMQ's: hash
  ARGV  [1] start_by_ms: the job's start deadline, in ms since 1970; '' if it has none
        [2] is_suspect: '1' if a worker has died while it held the job. Then the script also records the number of
            this fetch and of the job's stalls.
  Reply 1 if the job exists, else 0
]]
local job, start_by_ms, is_suspect = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', job) == 0 then return 0 end
if start_by_ms ~= '' then redis.call('HSET', job, 'sluice:begun', start_by_ms) end
if is_suspect == '1' then
  local known = redis.call('HMGET', job, 'ats', 'stc')
  redis.call('HSET', job, 'sluice:ran', (known[1] or '0') .. ':' .. (known[2] or '0'))
end
return 1

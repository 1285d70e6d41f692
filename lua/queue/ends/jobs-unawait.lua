--[[
  jobs-unawait: records that a process no longer awaits jobs. After the last process, it removes the results that were
  kept for them.

  KEYS  two for each job: the processes that await it: zset, 10 minutes; and its result, once the job is no longer kept:
        string, 10 minutes
  ARGV  [1] process
  Reply how many of the jobs are no longer awaited by any process
]]
local process = ARGV[1]
local ended = 0
for at = 1, #KEYS, 2 do
  local mark, outcome = KEYS[at], KEYS[at + 1]
  redis.call('ZREM', mark, process)
  if redis.call('EXISTS', mark) == 0 then
    redis.call('UNLINK', outcome)
    ended = ended + 1
  end
end
return ended

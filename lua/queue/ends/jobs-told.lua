--[[
  jobs-told: notes that a process waits for jobs no longer. What was kept for those that wait is removed with the last.

  KEYS  for each job two: the processes that wait for it: zset, 10 minutes; and its result, once the job is no longer
        kept: string, 10 minutes
  ARGV  [1] process
  Reply how many of the jobs nobody waits for any more
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

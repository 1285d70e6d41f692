--[[
  jobs-await: reads the outcomes of jobs that a process awaits. Marks jobs that have not ended as awaited. When a
  marked job is done and no longer kept, jobs-forget keeps its result for the process.

  KEYS  [1] completed, [2] failed, BullMQ's: zsets of ids
  ARGV  [1] prefix: the prefix of the queue's keys  [2] process  [3] awaited_ms: ms for which the marks last
        [4…] ids: ids of jobs
  Reply three values for each job. First its state: 0 not ended; 1 done; 2 failed; 3 cancelled before it began; -1
        removed. Second its result as JSON, the reason for its failure, or "". Third the code, status and causes
        of its error as JSON, or "".
]]
local completed, failed, prefix, process, for_ms = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]

local function outcome_of(id)
  local job = prefix .. id
  if redis.call('EXISTS', job) == 0 then
    local result = redis.call('GET', prefix .. 'outcome:' .. id)
    if result then return 1, result, '' end
    if redis.call('EXISTS', prefix .. 'cancelled:' .. id) == 1 then return 3, '', '' end
    return -1, '', ''
  end
  if redis.call('ZSCORE', completed, id) then return 1, redis.call('HGET', job, 'returnvalue') or 'null', '' end
  if redis.call('ZSCORE', failed, id) then
    local known = redis.call('HMGET', job, 'failedReason', 'sluice:failure')
    return 2, known[1] or '', known[2] or ''
  end
  local mark = prefix .. 'awaited:' .. id
  redis.call('ZADD', mark, 0, process)
  redis.call('PEXPIRE', mark, for_ms)
  return 0, '', ''
end

local reply = {}
for at = 4, #ARGV do
  reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = outcome_of(ARGV[at])
end
return reply

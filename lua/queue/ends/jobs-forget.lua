--[[
  jobs-forget: removes done jobs that are no longer kept, up to a thousand, the oldest first. These are the ones above
  the number to keep, and the ones that were done too long ago. The results of awaited jobs (jobs-await) are kept
  separately.

  KEYS  [1] completed, BullMQ's: zset of ids, by the ms since 1970 at which they were done
  ARGV  [1] prefix: the prefix of the queue's keys  [2] count: how many jobs are kept  [3] for_ms: ms for which they
            are kept
        [4] awaited_ms: ms for which the results of awaited jobs are kept
  Reply 1 if there may be more to remove, else 0
]]
-- @include lib/now-ms

local MOST = 1000
local beyond = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
local count = math.min(MOST, math.max(beyond, redis.call('ZCOUNT', KEYS[1], '-inf', now_ms() - tonumber(ARGV[3]))))
if count <= 0 then return 0 end

-- BullMQ can store more keys for a job. Sluice's jobs have only one more, for their log.
local ids, keys, marks = redis.call('ZRANGE', KEYS[1], 0, count - 1), {}, {}
for at, id in ipairs(ids) do
  keys[#keys + 1] = ARGV[1] .. id
  keys[#keys + 1] = ARGV[1] .. id .. ':logs'
  marks[at] = ARGV[1] .. 'awaited:' .. id
end
if redis.call('EXISTS', unpack(marks)) > 0 then
  for at, id in ipairs(ids) do
    if redis.call('EXISTS', marks[at]) == 1 then
      local result = redis.call('HGET', ARGV[1] .. id, 'returnvalue') or 'null'
      redis.call('SET', ARGV[1] .. 'outcome:' .. id, result, 'PX', ARGV[4])
    end
  end
end
redis.call('UNLINK', unpack(keys))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, count - 1)
return count == MOST and 1 or 0

--[[
  jobs-forget: removes done jobs that are no longer kept, the oldest first and up to a thousand: those beyond the number
  that is kept, and those that were done too long ago.

  KEYS  [1] completed, BullMQ's: zset of ids, by the ms since 1970 at which they were done
  ARGV  [1] the prefix of the queue's keys  [2] how many are kept  [3] ms since 1970: jobs done by then are removed
  Reply 1 if there may be more to remove, else 0
]]
local MOST = 1000
local beyond = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
local count = math.min(MOST, math.max(beyond, redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[3])))
if count <= 0 then return 0 end

-- BullMQ can keep more keys with a job; ours have only the one for its log.
local keys = {}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, count - 1)) do
  keys[#keys + 1] = ARGV[1] .. id
  keys[#keys + 1] = ARGV[1] .. id .. ':logs'
end
redis.call('UNLINK', unpack(keys))
redis.call('ZREMRANGEBYRANK', KEYS[1], 0, count - 1)
return count == MOST and 1 or 0

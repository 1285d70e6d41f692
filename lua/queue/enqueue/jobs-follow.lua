--[[
  jobs-follow: lets the next job start after the job that it had to wait for has ended.

  KEYS  [1] delayed  [2] marker, both BullMQ's  [3] hash: the running job (of), and the job that follows it (next)
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the id of the job that has ended
  Reply 1 if a job follows, else 0
]]
-- @include lib/time/now-ms
-- @include lib/lanes/states/unended

local delayed, marker, pair, prefix, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]
local of, follower = unpack(redis.call('HMGET', pair, 'of', 'next'))
if of ~= id or is_unended({ jobs = prefix }, id) then return 0 end
redis.call('DEL', pair)
local job, now = prefix .. follower, now_ms()
local after, stored_at_ms, delay = unpack(redis.call('HMGET', job, 'sluiceAfter', 'timestamp', 'delay'))
if after ~= id then return 0 end
redis.call('HDEL', job, 'sluiceAfter')
local due_ms = math.max(now, (tonumber(stored_at_ms) or 0) + (tonumber(delay) or 0))
redis.call('ZADD', delayed, 'XX', string.format('%.0f', due_ms * 4096), follower)
redis.call('ZADD', marker, 0, '0')
return 1

--[[
  jobs-orders: reads what operators have changed about a worker's jobs: pauses, and cancelled jobs.

  KEYS  [1] meta, BullMQ's: hash  [2] the state of the lanes: hash
        [3] the locks of running jobs that were cancelled: zset by the ms since 1970 of the cancellation
        [4] the paused keys: zset by the ms since 1970 at which their pauses end
  ARGV  [1] tokens: the beginning of this worker's lock tokens
  Reply [1] 1 if the queue is paused  [2] the version of this data, which grows with each change
        [3] the paused keys, each followed by the ms until its pause ends, or -1 without an end
        [4…] the locks of this worker's cancelled jobs, each as "<token> <job>"
]]
-- @include lib/time/now-ms
-- @include lib/lanes/pauses/pause-left
local meta, state, cancelled, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local tokens = ARGV[1]
local orders, paused_keys = unpack(redis.call('HMGET', state, 'orders', 'pausedKeys'))
local now = now_ms()
local keys = (tonumber(paused_keys) or 0) > 0 and paused_now(paused, now) or {}
local is_paused = queue_pause_left(meta, now) ~= 0 and 1 or 0
local reply = { is_paused, orders or '', keys }
for _, lock in ipairs(redis.call('ZREVRANGE', cancelled, 0, 4999)) do
  if string.sub(lock, 1, #tokens) == tokens then reply[#reply + 1] = lock end
end
return reply

--[[
  jobs-orders: tells a worker what holds for the jobs that it has.

  KEYS  [1] meta, BullMQ's: hash  [2] the state of the lanes: hash
        [3] the locks of running jobs that were cancelled: zset by the ms since 1970 at which they were
        [4] the paused keys: zset by the ms since 1970 at which their pauses end
  ARGV  [1] tokens: what the tokens of this worker begin with
  Reply 1 if the queue is paused; how often workers were told something; the paused keys, each followed by the ms for
        which it still is, or -1; then the locks that are the worker's, each as "<token> <job>"
]]
-- @include lib/now-ms
-- @include lib/lanes/pause-left
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

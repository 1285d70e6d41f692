--[[
  jobs-orders: tells a worker what holds for the jobs that it has.

  KEYS  [1] meta, BullMQ's: hash  [2] the state of the lanes: hash
        [3] the locks of running jobs that were cancelled: zset by the ms since 1970 at which they were
  ARGV  none
  Reply 1 if the queue is paused; how often workers were told something; then the locks, each as "<token> <job>"
]]
local meta, state, cancelled = KEYS[1], KEYS[2], KEYS[3]
local paused = redis.call('HEXISTS', meta, 'paused')
local orders = redis.call('HGET', state, 'orders') or ''
return { paused, orders, unpack(redis.call('ZREVRANGE', cancelled, 0, 4999)) }

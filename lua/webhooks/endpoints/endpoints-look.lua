--[[
  endpoints-look: reads the state of an endpoint. Changes nothing.

  KEYS  [1] health: hash  [2] log: zset of its attempts, by ms since 1970
        [3] line: list of the pending messages of an ordered endpoint
  ARGV  [1] prefix: the prefix of the queue's keys  [2] key: the key of its jobs
        [3] most: how many of its last attempts to return
  Reply ms until the endpoint's pause ends. The ms since 1970 of its first failure, or 0. The number of failed attempts
        in a row. The number of attempts that ended in the last minute. The number of due messages. Then its last
        attempts, the newest first, each as: the message, a space, and the number of the attempt.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lane-keys
local MINUTE_MS = 60000
local health, log, line = KEYS[1], KEYS[2], KEYS[3]
local prefix, key, most = ARGV[1], ARGV[2], tonumber(ARGV[3])
local now = now_ms()
local since, streak, open_until, left_until = unpack(
  redis.call('HMGET', health, 'since', 'streak', 'open_until', 'left_until'))
local wait_ms = math.max(0, tonumber(open_until or 0) - now, tonumber(left_until or 0) - now)
local in_minute = redis.call('ZCOUNT', log, now - MINUTE_MS, '+inf')
local waiting = math.max(redis.call('LLEN', line), redis.call('ZCARD', lane_names(prefix).lane .. key))
local reply = { wait_ms, tonumber(since or 0), tonumber(streak or 0), in_minute, waiting }
for _, attempt in ipairs(redis.call('ZREVRANGE', log, 0, most - 1)) do reply[#reply + 1] = attempt end
return reply

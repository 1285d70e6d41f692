--[[
  pauses-look: reads the active pauses of a queue. Changes nothing.

  KEYS  [1] meta, BullMQ's: hash  [2] the paused keys: zset by the ms since 1970 at which their pauses end
  ARGV  none
  Reply the ms until the queue's pause ends: 0 if it is not paused, -1 without an end. Then each paused key, followed
        by the ms until its pause ends.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/pauses/pause-left
local now = now_ms()
return { queue_pause_left(KEYS[1], now), unpack(paused_now(KEYS[2], now)) }

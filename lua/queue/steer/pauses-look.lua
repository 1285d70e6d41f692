--[[
  pauses-look: reads the pauses of a queue that are in force. Changes nothing.

  KEYS  [1] meta, BullMQ's: hash  [2] the paused keys: zset by the ms since 1970 at which their pauses end
  ARGV  none
  Reply the ms for which the queue is still paused: 0 if it is not, -1 without an end. Then each paused key, followed by
        the same for that key.
]]
-- @include lib/now-ms
-- @include lib/lanes/pause-left
local now = now_ms()
return { queue_pause_left(KEYS[1], now), unpack(paused_now(KEYS[2], now)) }

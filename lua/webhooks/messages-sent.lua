--[[
  messages-sent: records that all jobs of a message are stored.

  KEYS  [1] message: hash
  ARGV  [1] copy: the copy of the message
  Reply 1; 0 if the message is no longer stored
]]
local message, copy = KEYS[1], ARGV[1]
local at, stored = unpack(redis.call('HMGET', message, 'at', 'copy'))
if not at or (stored or '') ~= copy then return 0 end
redis.call('HSET', message, 'sent', 1)
return 1

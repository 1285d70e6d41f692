--[[
  clock-read: the time of the server that holds a key, to the microsecond. In a cluster, each node has a clock of its own.

  KEYS  [1] any key of that server; it is not read
  ARGV  none
  Reply as of TIME: seconds since 1970, and the microseconds of this second
]]
return redis.call('TIME')

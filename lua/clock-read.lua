--[[
  clock-read: reads the clock of the server that holds a key, in microseconds. In a cluster, each node has a separate
  clock.

  KEYS  [1] any key of that server; the script does not read it
  ARGV  none
  Reply as for the TIME command: seconds since 1970, and the microseconds of the current second
]]
return redis.call('TIME')

--[[
  line-join: appends messages to the line of an ordered endpoint.

  KEYS  [1] line: list  [2] state: hash, both as in lib/webhooks/line  [3] endpoints: hash of the tenant's records
  ARGV  [1] endpoint  [2…] entries: entries as in lib/webhooks/line
  Reply the next step; '' if the endpoint was removed
]]
-- @include lib/webhooks/line
local line, state, endpoints, id = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if redis.call('HEXISTS', endpoints, id) == 0 then return '' end
join_line(line, state, { unpack(ARGV, 2) })
return redis.call('HGET', state, 'step')

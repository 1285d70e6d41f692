--[[
  jobs-held: finds the jobs whose locks a worker holds, among the ten thousand that were fetched last.

  KEYS  [1] active, BullMQ's: list of ids, the last fetched one first
  ARGV  [1] prefix: the prefix of the queue's keys  [2] tokens: how the tokens of the worker begin
  Reply the id and the token of each such job, one after the other
]]
local MOST = 10000
local prefix, begins = ARGV[1], ARGV[2]
local held = {}
for _, id in ipairs(redis.call('LRANGE', KEYS[1], 0, MOST - 1)) do
  local token = redis.call('GET', prefix .. id .. ':lock')
  if token and string.sub(token, 1, #begins) == begins then
    held[#held + 1] = id
    held[#held + 1] = token
  end
end
return held

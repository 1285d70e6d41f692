--[[
  jobs-held: finds the jobs that a worker holds, by their locks, among the ten thousand most recently fetched jobs.

  KEYS  [1] active, BullMQ's: list of ids, the most recently fetched job first
  ARGV  [1] prefix: the prefix of the queue's keys  [2] tokens: the beginning of the worker's lock tokens
  Reply for each job, its id and then its token
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

--[[
  jobs-recall: reads the record of a job that is fetched again after a worker died while it held the job. The latest
  death counts only if the dead worker had begun the job. Otherwise the job only waited in that worker.

  KEYS  [1] the job, BullMQ's: hash
  ARGV  none
  Reply [1] how many recorded deaths of workers happened while it ran
        [2] the deadline that it met by starting, in ms since 1970; '' if none
]]
local job = KEYS[1]
local known = redis.call('HMGET', job, 'ats', 'stc', 'sluice:ran', 'sluice:deaths', 'sluice:begun')
local fetches, stalls, ran = tonumber(known[1]) or 0, tonumber(known[2]) or 0, known[3]
local deaths = tonumber(known[4]) or 0
if ran and ran == string.format('%d:%d', fetches - 1, stalls - 1) then
  deaths = deaths + 1
  redis.call('HSET', job, 'sluice:deaths', deaths)
  redis.call('HDEL', job, 'sluice:ran')
end
return {deaths, known[5] or ''}

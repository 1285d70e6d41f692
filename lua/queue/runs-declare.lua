--[[
  runs-declare: gives a schedule, and its run that is due and not fetched, a new declaration: times, data, options. It
  writes all or nothing: a worker that has fetched the run meanwhile plans the next one by the old declaration.

  KEYS  all BullMQ's: [1] sorted set: the schedules, by when their next run is due  [2] the schedule: hash
        [3] the run: hash  [4] list: the jobs that run
  ARGV  [1] the schedule's name  [2] the run's id  [3] ms since 1970 at which the run is due
        [4] JSON: { schedule: fields of it, run: fields of it }
  Reply 1 if it was written, 0 if the run is no longer due
]]
local schedules, schedule, run, active = unpack(KEYS)
local name, id, due_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local next_ms = tonumber(redis.call('ZSCORE', schedules, name))
if not due_ms or next_ms ~= due_ms then return 0 end
local stored, finished = unpack(redis.call('HMGET', run, 'name', 'finishedOn'))
if not stored or finished or redis.call('LPOS', active, id) then return 0 end

local function write(key, fields)
  for field, value in pairs(fields) do redis.call('HSET', key, field, value) end
end
local declared = cjson.decode(ARGV[4])
redis.call('HDEL', schedule, 'every', 'offset', 'pattern', 'tz')
write(schedule, declared.schedule)
write(run, declared.run)
return 1

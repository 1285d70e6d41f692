--[[
  limiter-report: stores how many jobs one limiter of `sluice/bottleneck` has. Returns the jobs of all limiters with its
  id, over all processes.

  KEYS  [1] hash: `done`, the weight of all done jobs; `settings`, as JSON; and for each busy limiter its queued jobs, the
            weight of its running jobs, and the time of its report in ms, "q|r|t". Expires after `kept_ms` without jobs.
  ARGV  [1] limiter: its name  [2] queued: its queued jobs  [3] running: the weight of its running jobs
        [4] done: the weight of the jobs that it has finished since its last report
        [5] alive_ms: ms for which a report counts  [6] kept_ms: ms for which the hash is kept
        [7] settings: its settings as JSON, stored if there are none yet
        [8] is_update: 1 to store the settings in any case
  Reply the number of queued jobs, the weights of running and of done jobs, the stored settings, and 1 if there were no
        settings before
]]
-- @include lib/time/now-ms

local key, limiter, queued, running, done = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local alive_ms, kept_ms, settings, is_update, now = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7], ARGV[8] == '1', now_ms()

local is_busy = queued + running > 0
if is_busy then redis.call('HSET', key, 'of:' .. limiter, queued .. '|' .. running .. '|' .. now)
else redis.call('HDEL', key, 'of:' .. limiter) end
if done > 0 then redis.call('HINCRBY', key, 'done', done) end
if is_update then redis.call('HSET', key, 'settings', settings) end
local is_new = redis.call('HSETNX', key, 'settings', settings)
if is_busy or done > 0 or is_update or is_new == 1 then redis.call('PEXPIRE', key, kept_ms) end

local fields, queued_in_all, running_in_all = redis.call('HGETALL', key), 0, 0
for at = 1, #fields, 2 do
  local its_queued, its_running, reported_ms = string.match(fields[at + 1], '^(%d+)|(%d+)|(%d+)$')
  if string.sub(fields[at], 1, 3) == 'of:' then
    if tonumber(reported_ms) + alive_ms < now then redis.call('HDEL', key, fields[at])
    else
      queued_in_all = queued_in_all + tonumber(its_queued)
      running_in_all = running_in_all + tonumber(its_running)
    end
  end
end
local done_in_all = redis.call('HGET', key, 'done') or 0
return { queued_in_all, running_in_all, tonumber(done_in_all), redis.call('HGET', key, 'settings'), is_new }

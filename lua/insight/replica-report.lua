--[[
  replica-report: stores what a replica reports about itself and its buckets, and returns the overrides that have ended.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] replica  [2] about: its host, pid, version and start, as JSON
        [3] alive_ms: ms for which it counts as alive
        [4] step_ms: the step of the history  [5] history_kept_ms: ms for which the history is kept
        [6] kept_ms: ms for which a bucket is kept  [7] is_last: 1 for its last report, which removes its reports
        [8…] buckets: seven values for each bucket. The first two are its name, and its activity as JSON. The numbers of
            started and rejected calls follow. Next is the policy of the code, or ''. The last two are the numbers of
            waiting callers by rank, "c,h,n,l" or '', and for how many ms they were valid.
  Reply 1 if the replica was unknown, and up to 100 records of overrides that have ended and that no other replica ends.
        The last report of a replica returns none.
]]
-- @include lib/time/now-ms
-- @include lib/state/history

local FORGOTTEN_AT_ONCE = 10
-- Ms for which a replica may end an override before another one gets it.
local ENDING_MS = 5000

local base, replica, alive_ms, now = KEYS[1], ARGV[1], tonumber(ARGV[3]), now_ms()
local times, kept_ms = { now = now, step_ms = tonumber(ARGV[4]), kept_ms = tonumber(ARGV[5]) }, tonumber(ARGV[6])

local is_last, is_new = ARGV[7] == '1', 0
if is_last then
  redis.call('ZREM', base .. ':replicas', replica)
  redis.call('DEL', base .. ':replica:' .. replica)
else
  is_new = redis.call('ZADD', base .. ':replicas', now, replica)
  redis.call('SET', base .. ':replica:' .. replica, ARGV[2], 'PX', alive_ms)
end
redis.call('ZREMRANGEBYSCORE', base .. ':replicas', '-inf', now - alive_ms)
redis.call('PEXPIRE', base .. ':replicas', alive_ms)
local replicas = redis.call('ZCARD', base .. ':replicas')

-- Removes the reports of killed replicas.
local function forget_dead(reports)
  if redis.call('HLEN', reports) <= replicas then return end
  for _, name in ipairs(redis.call('HKEYS', reports)) do
    if not redis.call('ZSCORE', base .. ':replicas', name) then redis.call('HDEL', reports, name) end
  end
end

for at = 8, #ARGV, 7 do
  local bucket, state, started, refused, declared, waited, for_ms = unpack(ARGV, at, at + 6)
  local reports = base .. ':reports:' .. bucket
  if is_last then
    redis.call('HDEL', reports, replica)
  else
    redis.call('HSET', reports, replica, now .. '|' .. state)
    redis.call('PEXPIRE', reports, alive_ms)
  end
  forget_dead(reports)
  redis.call('ZADD', base .. ':names', 0, bucket)
  redis.call('ZADD', base .. ':seen', now, bucket)
  if declared ~= '' then redis.call('HSET', base .. ':declared', bucket, declared) end
  if tonumber(refused) > 0 then redis.call('HINCRBY', base .. ':refusals', bucket, refused) end
  add_calls(base .. ':history:' .. bucket .. ':', times, tonumber(started), tonumber(refused))
  add_waits(base .. ':waits:' .. bucket .. ':', times, waited, tonumber(for_ms))
end
for _, bucket in ipairs(redis.call('ZRANGEBYSCORE', base .. ':seen', '-inf', now - kept_ms, 'LIMIT', 0, FORGOTTEN_AT_ONCE)) do
  redis.call('ZREM', base .. ':seen', bucket)
  if redis.call('HEXISTS', base .. ':rules:texts', bucket) == 0 then redis.call('ZREM', base .. ':names', bucket) end
  for _, name in ipairs({ ':declared', ':refusals' }) do redis.call('HDEL', base .. name, bucket) end
end
for _, name in ipairs({ ':names', ':seen', ':declared', ':refusals' }) do redis.call('PEXPIRE', base .. name, kept_ms) end
local over, dues = {}, is_last and {} or redis.call('ZRANGEBYSCORE', base .. ':due', '-inf', now, 'LIMIT', 0, 100)
for _, due in ipairs(dues) do
  local id, bucket = string.match(due, '^(.-)|(.*)$')
  local record = redis.call('HGET', base .. ':overrides:' .. bucket, id)
  if not record then redis.call('ZREM', base .. ':due', due)
  elseif redis.call('SET', base .. ':ending:' .. due, replica, 'NX', 'PX', ENDING_MS) then
    over[#over + 1] = id .. '|' .. record
  end
end
return { is_new, over }

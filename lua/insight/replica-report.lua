--[[
  replica-report: takes in what one replica tells of itself and of its buckets, and answers which overrides are over.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the replica  [2] what it is, as JSON  [3] for how long it counts as alive, in ms
        [4] the step of the history  [5] for how long that, and [6] a bucket, are kept; all in ms
        [7] 1 if it is the replica's last report: what it told is forgotten then
        then of each bucket: its name, how it is there as JSON, calls started, calls refused, the policy of the code or "",
        how many callers waited by rank until now, "c,h,n,l" or "" for none, and for how long that was so, in ms
  Reply 1 if nothing was known of the replica, and the records of the overrides whose time is over and that no other
        replica is ending, 100 at most; none to a replica that goes
]]
-- @include lib/now-ms
-- @include lib/history

local FORGOTTEN_AT_ONCE = 10
-- For how long a replica has time to end an override before another one hears of it.
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

-- What replicas told that were killed.
local function forget_dead(told)
  if redis.call('HLEN', told) <= replicas then return end
  for _, name in ipairs(redis.call('HKEYS', told)) do
    if not redis.call('ZSCORE', base .. ':replicas', name) then redis.call('HDEL', told, name) end
  end
end

for at = 8, #ARGV, 7 do
  local bucket, state, started, refused, declared, waited, for_ms = unpack(ARGV, at, at + 6)
  local told = base .. ':told:' .. bucket
  if is_last then
    redis.call('HDEL', told, replica)
  else
    redis.call('HSET', told, replica, now .. '|' .. state)
    redis.call('PEXPIRE', told, alive_ms)
  end
  forget_dead(told)
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

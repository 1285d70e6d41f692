--[[
  queues-report: stores which queues a replica has open, and which workers it runs.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] replica  [2] kept_ms: ms for which a queue is kept after its last report
        [3] workers: its workers as JSON; '' for none, "=" if they are unchanged
        [4…] queues: the name of each queue, and its declaration as JSON
  Reply nil
]]
-- @include lib/time/now-ms

local FORGOTTEN_AT_ONCE = 10

local base, replica, kept_ms, workers = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local now = now_ms()

if workers == '' then redis.call('HDEL', base .. ':workers', replica)
elseif workers ~= '=' then redis.call('HSET', base .. ':workers', replica, workers) end
-- Removes the workers of replicas that were killed.
if redis.call('HLEN', base .. ':workers') > redis.call('ZCARD', base .. ':replicas') then
  for _, name in ipairs(redis.call('HKEYS', base .. ':workers')) do
    if not redis.call('ZSCORE', base .. ':replicas', name) then redis.call('HDEL', base .. ':workers', name) end
  end
end
for at = 4, #ARGV, 2 do
  local queue, facts = ARGV[at], ARGV[at + 1]
  redis.call('ZADD', base .. ':queues', 0, queue)
  redis.call('ZADD', base .. ':seen-queues', now, queue)
  redis.call('HSET', base .. ':of-queues', queue, facts)
end
for _, queue in ipairs(redis.call('ZRANGEBYSCORE', base .. ':seen-queues', '-inf', now - kept_ms, 'LIMIT', 0, FORGOTTEN_AT_ONCE)) do
  for _, name in ipairs({ ':seen-queues', ':queues' }) do redis.call('ZREM', base .. name, queue) end
  redis.call('HDEL', base .. ':of-queues', queue)
end
for _, name in ipairs({ ':queues', ':seen-queues', ':of-queues', ':workers' }) do
  redis.call('PEXPIRE', base .. name, kept_ms)
end

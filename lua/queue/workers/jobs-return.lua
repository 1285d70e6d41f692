--[[
  jobs-return: puts a job that a worker holds but has not begun back at its old position. The job keeps all its
  attempts. A cancelled job is only unlocked; the caller removes it.

  KEYS  [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] active  [7] prioritized  [8] stalled, all BullMQ's
        [9] notifies processes that await the job of its cancellation: string, kept for ten minutes
  ARGV  [1] prefix: the prefix of the queue's keys  [2] id: the job  [3] token: the token of its lock
        [4] weights: JSON: weights as in lanes-join, or ''
  Reply 1 if the job is pending again, 2 if it was cancelled, 0 if this worker no longer holds it
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/weights
-- @include lib/lanes/states/cancelled

local active, prioritized, stalled = KEYS[6], KEYS[7], KEYS[8]
local id, token, weights = ARGV[2], ARGV[3], ARGV[4] ~= '' and cjson.decode(ARGV[4])
local lanes = open_lanes(KEYS, ARGV[1], now_ms())
local job = lanes.jobs .. id
if redis.call('GET', job .. ':lock') ~= token then return 0 end
redis.call('DEL', job .. ':lock')
redis.call('SREM', stalled, id)
if redis.call('HEXISTS', job, CANCELLED) == 1 then
  publish_cancelled(lanes.events, KEYS[9], id)
  return 2
end
if redis.call('LREM', active, 1, id) == 0 then return 0 end

local name, given, place = unpack(redis.call('HMGET', job, 'name', 'priority', 'sluicePlace'))
if not name then return 0 end
local priority, key = tonumber(given) or 0, key_of(name)
if key then
  redis.call('ZADD', lanes.delayed, string.format('%.0f', (lanes.now_ms + DAY_MS) * 4096), id)
  join(lanes, id)
  weigh(lanes, key, weights)
  close_lanes(lanes)
elseif priority == 0 then
  redis.call('RPUSH', lanes.wait, id)
else
  -- If the job has no stored position for its priority, it goes before all other jobs of that priority.
  local first = priority * 2 ^ 32
  place = tonumber(place) or first
  if math.floor(place / 2 ^ 32) ~= priority then place = first end
  redis.call('ZADD', prioritized, string.format('%.0f', place), id)
end
redis.call('XADD', lanes.events, '*', 'event', 'waiting', 'jobId', id, 'prev', 'active')
announce(lanes)
return 1

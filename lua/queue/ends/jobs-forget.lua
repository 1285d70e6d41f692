--[[
  jobs-forget: removes done jobs that are no longer kept, up to a thousand, the oldest first. These are the ones above
  the number to keep, and the ones that were done too long ago. The results of awaited jobs (jobs-await) are kept
  separately.

  KEYS  [1] completed, BullMQ's: zset of ids, by the ms since 1970 at which they were done
  ARGV  [1] prefix: the prefix of the queue's keys  [2] count: how many jobs are kept  [3] for_ms: ms for which they
            are kept
        [4] awaited_ms: ms for which the results of awaited jobs are kept
        [5] skip: how many of the oldest jobs to pass over
  Reply 1 if there may be more to remove, else 0; and a list of jobs that stay because children wait for them
]]
-- @include lib/time/now-ms
-- @include lib/flows/flow-keys

local MOST = 1000
local skip = tonumber(ARGV[5])
local beyond = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[2])
local old = redis.call('ZCOUNT', KEYS[1], '-inf', now_ms() - tonumber(ARGV[3]))
local count = math.min(MOST, math.max(beyond, old) - skip)
if count <= 0 then return { 0, {} } end
local is_more = count == MOST and 1 or 0

-- BullMQ can store more keys for a job. Sluice's jobs have only one more, for their log.
local ids, keys, marks = redis.call('ZRANGE', KEYS[1], skip, skip + count - 1), {}, {}
local found, needed = #ids, {}

-- Keeps the jobs whose children were not notified yet, and returns the others.
local function without_parents(given)
  local flows, others = flow_names(ARGV[1]), {}
  for _, id in ipairs(given) do
    if redis.call('EXISTS', flows.children .. id) == 0 then
      forget_parents(flows, id)
      others[#others + 1] = id
    else
      needed[#needed + 1] = id
    end
  end
  return others
end

if redis.call('HEXISTS', ARGV[1] .. 'lanes:state', 'flows') == 1 then ids = without_parents(ids) end
if #ids == 0 then return { is_more, needed } end
for at, id in ipairs(ids) do
  keys[#keys + 1] = ARGV[1] .. id
  keys[#keys + 1] = ARGV[1] .. id .. ':logs'
  marks[at] = ARGV[1] .. 'awaited:' .. id
end
if redis.call('EXISTS', unpack(marks)) > 0 then
  for at, id in ipairs(ids) do
    if redis.call('EXISTS', marks[at]) == 1 then
      local result = redis.call('HGET', ARGV[1] .. id, 'returnvalue') or 'null'
      redis.call('SET', ARGV[1] .. 'outcome:' .. id, result, 'PX', ARGV[4])
    end
  end
end
redis.call('UNLINK', unpack(keys))
if #ids == found then redis.call('ZREMRANGEBYRANK', KEYS[1], skip, skip + count - 1) else redis.call('ZREM', KEYS[1], unpack(ids)) end
return { is_more, needed }

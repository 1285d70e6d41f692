--[[
  failed-forget: removes dead letters that are no longer kept, up to a thousand, the oldest first. These are the ones
  above the number to keep, and the ones that failed too long ago. It removes none while dead letters are being
  replayed. It also keeps a dead letter while a process awaits its outcome (jobs-await),
  or jobs that wait for it were not notified.

  KEYS  [1] failed, BullMQ's: zset of ids, by the ms since 1970 at which they failed
        [2] exists while dead letters are being replayed: string, one minute
  ARGV  [1] prefix: the prefix of the queue's keys  [2] count: how many are kept, "" for all
        [3] for_ms: ms for which they are kept, "" for ever
        [4] skip: how many of the oldest dead letters to pass over
  Reply four values. First the number of removed dead letters. Second the number of those that stay. Third 1 if there
        may be more to remove, else 0. Fourth a list of those that stay because children wait for them.
]]
-- @include lib/time/now-ms
-- @include lib/flows/flow-keys

local MOST = 1000
local failed, replaying, prefix, most, for_ms = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local skip = tonumber(ARGV[4])
if redis.call('EXISTS', replaying) == 1 then return { 0, 0, 0, {} } end
local beyond = most and redis.call('ZCARD', failed) - most or 0
local old = for_ms and redis.call('ZCOUNT', failed, '-inf', string.format('%.0f', now_ms() - for_ms)) or 0
local count = math.min(MOST, math.max(beyond, old) - skip)
if count <= 0 then return { 0, 0, 0, {} } end

local removed, needed, flows = 0, {}, flow_names(prefix)
for _, id in ipairs(redis.call('ZRANGE', failed, skip, skip + count - 1)) do
  -- Children that were not notified yet have no expiry.
  local is_needed = redis.call('PTTL', flows.children .. id) == -1
  if is_needed then needed[#needed + 1] = id end
  if redis.call('EXISTS', prefix .. 'awaited:' .. id) == 0 and not is_needed then
    forget_parents(flows, id)
    forget_children(flows, id)
    redis.call('UNLINK', prefix .. id, prefix .. id .. ':logs')
    redis.call('ZREM', failed, id)
    removed = removed + 1
  end
end
return { removed, count - removed, count == MOST and 1 or 0, needed }

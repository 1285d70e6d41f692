--[[
  change-note: notes a change in one of the logs of changes, and one of a bucket as the override that it begins once it is
  made. There is a log for each of: buckets by hand, by rules, queues, endpoints, both of these by rules, and endpoints
  without a named author. Rules may change thousands of buckets at once, and tenants thousands of endpoints: those do not push
  out what else was changed.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket, or the queue  [2] the change as JSON  [3] how many changes are kept
        [4] the override that it begins, as JSON, or ""  [5] for how long that holds, in ms; "" if without end
        [6] for how long all of it is kept after the last change, in ms  [7] which log: "", or ":rules" and the like
        [8] the second number of the ids of this log, or of the first of several in a ms; "" if they are Redis' own
        of a change of an endpoint also: [9] who made it and for which tenant, as a digest  [10] how many of those are kept
  Reply the change's id
]]
-- @include lib/now-ms

local base, bucket, most, begun, for_ms, kept_ms = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local log, first_number = base .. ':changes' .. ARGV[7], ARGV[8]

-- Far from any id that another log has of the same time.
local function own_id()
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local last_ms, last_number = string.match(last and last[1] or '0-0', '^(%d+)-(%d+)$')
  local at_ms = now_ms()
  if tonumber(last_ms) < at_ms then return string.format('%.0f-%s', at_ms, first_number) end
  return string.format('%s-%.0f', last_ms, last_number + 1)
end

local id = first_number == '' and '*' or own_id()
id = redis.call('XADD', log, 'MAXLEN', '~', most, id, 'bucket', bucket, 'change', ARGV[2])
redis.call('PEXPIRE', log, kept_ms)
if ARGV[9] then
  -- One author never fills the log.
  local own = base .. ':changes:of:' .. ARGV[9]
  redis.call('RPUSH', own, id)
  redis.call('PEXPIRE', own, kept_ms)
  if redis.call('LLEN', own) > tonumber(ARGV[10]) then redis.call('XDEL', log, redis.call('LPOP', own)) end
end
if begun == '' then return id end
local until_ms = ''
if for_ms ~= '' then
  until_ms = string.format('%.0f', now_ms() + tonumber(for_ms))
  redis.call('ZADD', base .. ':due', until_ms, id .. '|' .. bucket)
  redis.call('PEXPIRE', base .. ':due', kept_ms)
end
-- What is in force stays noted: this change may be refused.
redis.call('HSET', base .. ':overrides:' .. bucket, id, '|' .. until_ms .. '|' .. begun)
redis.call('PEXPIRE', base .. ':overrides:' .. bucket, kept_ms)
return id

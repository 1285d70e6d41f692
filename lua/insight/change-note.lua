--[[
  change-note: notes a change of a bucket in the log of those by hand or by rules, and as the override that it begins once
  it is made. Rules may change thousands of buckets at once: those do not push out what was changed by hand.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket  [2] the change as JSON  [3] how many changes are kept
        [4] the override that it begins, as JSON, or ""  [5] for how long that holds, in ms; "" if without end
        [6] for how long all of it is kept after the last change, in ms  [7] 1 if rules have made it
  Reply the change's id
]]
-- @include lib/now-ms

local base, bucket, most, begun, for_ms, kept_ms = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local is_ruled = ARGV[7] == '1'
local log = base .. (is_ruled and ':changes:rules' or ':changes')

-- Of the log of rules, far from any id that the other log has of the same time.
local function ruled_id()
  local last = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  local last_ms, last_number = string.match(last and last[1] or '0-0', '^(%d+)-(%d+)$')
  local at_ms = now_ms()
  if tonumber(last_ms) < at_ms then return string.format('%.0f-1000000', at_ms) end
  return string.format('%s-%.0f', last_ms, last_number + 1)
end

local id = redis.call('XADD', log, 'MAXLEN', '~', most, is_ruled and ruled_id() or '*', 'bucket', bucket, 'change', ARGV[2])
redis.call('PEXPIRE', log, kept_ms)
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

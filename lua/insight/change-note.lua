--[[
  change-note: notes a change of a bucket by hand in the log, and as the override that it begins once it is made.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket  [2] the change as JSON  [3] how many changes are kept
        [4] the override that it begins, as JSON, or ""  [5] for how long that holds, in ms; "" if without end
        [6] for how long all of it is kept after the last change, in ms
  Reply the change's id
]]
-- @include lib/now-ms

local base, bucket, most, begun, for_ms, kept_ms = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local id = redis.call('XADD', base .. ':changes', 'MAXLEN', '~', most, '*', 'bucket', bucket, 'change', ARGV[2])
redis.call('PEXPIRE', base .. ':changes', kept_ms)
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

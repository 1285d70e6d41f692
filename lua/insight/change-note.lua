--[[
  change-note: notes a change of a bucket by hand in the log, and as the override or the pause that it begins or ends.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the bucket  [2] the change as JSON  [3] how many changes are kept
        [4] "override" or "pause": what it begins or ends of the whole bucket; or ""
        [5] what it begins, as JSON; "" if it ends it  [6] for how long it holds, in ms; "" if without end
        [7] for how long all of it is kept after the last change, in ms
  Reply the change's id
]]
-- @include lib/now-ms

local base, bucket, kind, begun = KEYS[1], ARGV[1], ARGV[4], ARGV[5]
local id = redis.call('XADD', base .. ':changes', 'MAXLEN', '~', ARGV[3], '*', 'bucket', bucket, 'change', ARGV[2])
if kind == 'pause' then
  if begun == '' then redis.call('HDEL', base .. ':pauses', bucket)
  else redis.call('HSET', base .. ':pauses', bucket, id) end
elseif kind == 'override' then
  redis.call('ZREM', base .. ':due', bucket)
  if begun == '' then
    redis.call('HDEL', base .. ':overrides', bucket)
  else
    local until_ms = ''
    if ARGV[6] ~= '' then
      until_ms = string.format('%.0f', now_ms() + tonumber(ARGV[6]))
      redis.call('ZADD', base .. ':due', until_ms, bucket)
    end
    redis.call('HSET', base .. ':overrides', bucket, id .. '|' .. until_ms .. '|' .. begun)
  end
end
for _, name in ipairs({ ':changes', ':pauses', ':overrides', ':due' }) do redis.call('PEXPIRE', base .. name, ARGV[7]) end
return id

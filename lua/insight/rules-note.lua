--[[
  rules-note: notes the policies that rules come to for some buckets, while those rules are in force, and lists these
  buckets: they may have had no calls yet. replica-report also lists those that had calls.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the rules' digest  [2] their version  [3] for how long they are kept, in ms
        [4] for how long buckets are listed, in ms; then of each bucket, or of a setting such as "queue:mail": its name, and the text of its policy, or "" if rules say nothing of it any more
  Reply of each bucket: what was noted before, or ""; nil if other rules are in force
]]
local base, digest, version, kept_ms, listed_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local head = redis.call('GET', base .. ':rules') or ''
if string.match(head, '^%d+|%d+|([^|]*)|') ~= digest then return false end
local texts, names, seen, earlier = base .. ':rules:texts', base .. ':names', base .. ':seen', {}
for at = 5, #ARGV, 2 do
  local name, text = ARGV[at], ARGV[at + 1]
  local is_bucket = not string.find(name, ':', 1, true)
  earlier[#earlier + 1] = redis.call('HGET', texts, name) or ''
  if text == '' then
    redis.call('HDEL', texts, name)
    if is_bucket and not redis.call('ZSCORE', seen, name) then redis.call('ZREM', names, name) end
  else
    redis.call('HSET', texts, name, version .. '|' .. text)
    if is_bucket then redis.call('ZADD', names, 0, name) end
  end
end
redis.call('PEXPIRE', texts, kept_ms)
redis.call('PEXPIRE', names, listed_ms)
return earlier

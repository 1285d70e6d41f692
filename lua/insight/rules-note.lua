--[[
  rules-note: stores the policies that rules define for some buckets, if those rules are still active. It also lists
  these buckets, because they may have had no calls yet.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] digest: the digest of the rules  [2] version: their version  [3] kept_ms: ms for which they are kept
        [4] listed_ms: ms for which buckets are listed
        [5…] policies: the name of each bucket or setting such as "queue:mail", and the text of its policy; '' removes it
  Reply the earlier text for each name, or ''; nil if other rules are active
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

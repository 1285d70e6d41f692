--[[
  rules-note: notes the policies that rules come to for some buckets, while those rules are in force.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the rules' digest  [2] their version  [3] for how long they are kept, in ms
        then of each bucket: its name, and the text of its policy, or "" if rules say nothing of it any more
  Reply of each bucket: what was noted before, or ""; nil if other rules are in force
]]
local base, digest, version, kept_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local head = redis.call('GET', base .. ':rules') or ''
if string.match(head, '^%d+|%d+|([^|]*)|') ~= digest then return false end
local texts, earlier = base .. ':rules:texts', {}
for at = 4, #ARGV, 2 do
  earlier[#earlier + 1] = redis.call('HGET', texts, ARGV[at]) or ''
  if ARGV[at + 1] == '' then redis.call('HDEL', texts, ARGV[at])
  else redis.call('HSET', texts, ARGV[at], version .. '|' .. ARGV[at + 1]) end
end
redis.call('PEXPIRE', texts, kept_ms)
return earlier

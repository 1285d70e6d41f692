--[[
  rules-done: records that all buckets have the rules. If other rules were offered in the meantime, it lets those
  rules be applied again, because some buckets may have received this script's rules last.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] digest: the digest of the rules  [2] done_ms: ms for which this is valid
  Reply nil
]]
local base, digest, done_ms = KEYS[1], ARGV[1], ARGV[2]
local head = redis.call('GET', base .. ':rules') or ''
redis.call('DEL', base .. ':rules:claim:' .. digest)
if string.match(head, '^%d+|%d+|([^|]*)|') == digest then redis.call('SET', base .. ':rules:done', digest, 'PX', done_ms)
else redis.call('DEL', base .. ':rules:done') end

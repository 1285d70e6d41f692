--[[
  rules-done: rules are in force for all buckets. If others have come meanwhile, some buckets may have these although the
  others had been there already: then the others are to be put in force again.

  KEYS  [1] how all keys of the fleet begin
  ARGV  [1] the rules' digest  [2] for how long that is believed, in ms
  Reply nil
]]
local base, digest, done_ms = KEYS[1], ARGV[1], ARGV[2]
local head = redis.call('GET', base .. ':rules') or ''
redis.call('DEL', base .. ':rules:claim:' .. digest)
if string.match(head, '^%d+|%d+|([^|]*)|') == digest then redis.call('SET', base .. ':rules:done', digest, 'PX', done_ms)
else redis.call('DEL', base .. ':rules:done') end

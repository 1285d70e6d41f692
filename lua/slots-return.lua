--[[
  slots-return: takes back slots that nobody waits for any more, and the asker's turn with them.
  Twin of src/core/give-back.ts.

  KEYS  [1] state, [2] turns, [3] holes: as in slots-draw
  ARGV  [1] asker  [2] cost of each slot  [3] generation of the slots  [4] pinned_us, '' in production
        [5..] slot_us, latest first; 1,000 at most
  Reply 1 if the bucket was known, else 0
]]
-- @include lib/now
-- @include lib/bucket

local keys = { state = KEYS[1], turns = KEYS[2], holes = KEYS[3] }
local asker = ARGV[1]
local cost = tonumber(ARGV[2])
local generation = tonumber(ARGV[3])
local pinned_us = ARGV[4]
local slots = { unpack(ARGV, 5) }

local bucket = load_bucket(keys.state)
if not bucket then return 0 end
redis.call('ZREM', keys.turns, asker)
if generation ~= bucket.generation or #slots == 0 then return 1 end

advance(bucket, now_us(pinned_us))
local burst_level = bucket.burst * bucket.period_us
for index, text in ipairs(slots) do
  local slot_us = tonumber(text)
  local last_us = bucket.clock_us + drain_us(bucket, bucket.level - burst_level)
  if slot_us == last_us and slot_us > bucket.clock_us then
    bucket.level = bucket.level - cost * bucket.period_us
  elseif slot_us > bucket.clock_us then
    local member = string.format('%.0f %.0f %s %d', cost, slot_us, asker, index - 1)
    bucket.holes = bucket.holes + redis.call('ZADD', keys.holes, slot_us, member)
  end
end
save_bucket(keys.state, bucket)
if bucket.holes > 0 then redis.call('PEXPIRE', keys.holes, KEEP_MS) end
return 1

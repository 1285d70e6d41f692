--[[
  warnings-read: returns the warnings of a bucket's budgets that a reader has not handled yet, the oldest first.

  KEYS  [1] log: zset, as keys[4] in lua/lib/limits/budget.lua
        [2] cursor: string, the number of the last warning that the reader has handled; expires 30 days after its last use
  ARGV  [1] pinned_us  [2] handled: the number of a warning that the reader has handled now. 0: none
        [3] most: the most warnings to return
  Reply { warning, number, ... }
]]
-- @include lib/time/now

local log, cursor = KEYS[1], KEYS[2]
local pinned_us, handled, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not pinned_us or not handled or not most then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
-- A new reader gets the warnings of the last minute: it may have begun to read after the first call of its process.
local KEEP_MS, FIRST_US = 2592000000, 60000000

-- Another process may have handled later warnings, so the cursor never goes back.
local from = math.max(handled, tonumber(redis.call('GET', cursor) or now_us(pinned_us) - FIRST_US))
redis.call('SET', cursor, string.format('%.0f', from), 'PX', KEEP_MS)
return redis.call('ZRANGEBYSCORE', log, string.format('(%.0f', from), '+inf', 'WITHSCORES', 'LIMIT', 0, most)

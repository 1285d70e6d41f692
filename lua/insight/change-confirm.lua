--[[
  change-confirm: records that a change was made, and removes the overrides that it replaced. If several changes
  happen at the same time, the last one is the change that gave the bucket the highest generation.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] bucket  [2] id: the id of the change  [3] subject: "policy" or "pause"
        [4] is_begun: 1 if an override or a pause begins  [5] generation: the new generation of the bucket
        [6] unconfirmed_ms: ms after which an unconfirmed change counts as made
        [7] kept_ms: ms for which logs and overrides are kept
  Reply nil
]]
local base, bucket, id, generation, kept_ms = KEYS[1], ARGV[1], ARGV[2], ARGV[5], ARGV[7]
local is_begun, unconfirmed_ms = ARGV[4] == '1', tonumber(ARGV[6])

local function generation_of(record)
  return tonumber(string.match(record, '^(%d+)|'))
end

if ARGV[3] == 'pause' then
  local found = redis.call('HGET', base .. ':pauses', bucket)
  if found and generation_of(found) > tonumber(generation) then return end
  redis.call('HSET', base .. ':pauses', bucket, generation .. '|' .. (is_begun and id or ''))
  redis.call('PEXPIRE', base .. ':pauses', kept_ms)
  return
end

local overrides, made_ms = base .. ':overrides:' .. bucket, tonumber(string.match(id, '^%d+'))

local function forget(other)
  redis.call('HDEL', overrides, other)
  redis.call('ZREM', base .. ':due', other .. '|' .. bucket)
end

local is_over, records = false, redis.call('HGETALL', overrides)
for at = 1, #records, 2 do
  local other, its = records[at], generation_of(records[at + 1])
  if other ~= id then
    if its and its > tonumber(generation) then is_over = true
    elseif its or tonumber(string.match(other, '^%d+')) < made_ms - unconfirmed_ms then forget(other) end
  end
end
if not is_begun then return end
local record = redis.call('HGET', overrides, id)
if is_over then forget(id)
elseif record then redis.call('HSET', overrides, id, generation .. string.match(record, '|.*$')) end

--[[
  slots-try: a fast path of slots-draw for tries of many keys that each have one plain limit, in a bucket without
  shared limits. It has the same result in a tenth of the time. If anything about the bucket or a key is unusual, the
  script writes nothing and replies "". The caller then runs slots-draw.

  KEYS  [1] the bucket's state  string: see lib/state/pack; expires as in slots-draw
        [2..] the keys' states, each key once  string: see lib/state/pack; expire a minute after their limit has drained
  ARGV  [1] the policy's text
        [2] numbers: pinned_us (0 in production) drew_us (0: a lost bucket starts full) version,
            the limit: code count period_us capacity, then per key: wanted, cost
  Reply numbers, packed as doubles: now_us, generation, version, alive, source, per key: granted,
        excess (see lib/limits/leaky-bucket), used (of a window; else in cost x period). Or "", see above
]]
-- @include lib/time/now
-- @include lib/state/quiet
-- This code uses only local variables and no function calls, because Lua itself takes half of the time for each key.
local text, numbers = ARGV[1], { struct.unpack('<' .. string.rep('d', #ARGV[2] / 8), ARGV[2]) }
local _, _, _, code, count, period_us, capacity = unpack(numbers)
for index = 1, 7 do
  if numbers[index] % 1 ~= 0 or numbers[index] >= 2 ^ 53 or numbers[index] < (index > 4 and 1 or 0) then return '' end
end
-- @include lib/fast/quiet-bucket

local keys, sub, read, pack = KEYS, string.sub, struct.unpack, struct.pack
local states, lives_us, odd = {}, {}, 0
local reply, at = { now, generation, own_version, math.max(1, alive, alive_before), source }, 5
local found = redis.call('MGET', unpack(keys, 2))
for index = 1, #found do
  local key_packed, wanted, cost = found[index], numbers[6 + 2 * index], numbers[7 + 2 * index]
-- @include lib/fast/plain-try-found
  odd = odd + wanted % 1 + cost % 1
  if last_us > now or not (wanted >= 1 and wanted <= 1000000 and cost >= 1 and cost <= capacity) then return '' end
  local granted, excess, used, life_us
-- @include lib/fast/plain-try-take
  reply[at + 1], reply[at + 2], reply[at + 3] = granted, excess, used
  at = at + 3
  if granted > 0 then
    lives_us[index] = life_us
    if unusual then
      states[index] = pack('<dc72dddddddd', now, unusual, 1, code, count, period_us, capacity, a, b, c)
    elseif life_us then
      states[index] = pack('<ddddddddd', 1, code, count, period_us, capacity, a, b, c, now)
    else
      states[index] = pack('<dddd', a, b, c, now)
    end
  end
end
if odd ~= 0 then return '' end

-- The expiry is passed as text: Redis takes longer to format a number than for the rest of the command.
local call, has_granted, known_us, life_ms = redis.call, false, nil, nil
for index = 1, #found do
  local state, life_us = states[index], lives_us[index]
  if life_us then
    if life_us ~= known_us then known_us, life_ms = life_us, string.format('%.0f', math.ceil(life_us / 1000) + 60000) end
    call('SET', keys[index + 1], state, 'PX', life_ms)
  elseif state then
    call('SETRANGE', keys[index + 1], #state == 32 and '40' or '0', state)
  end
  has_granted = has_granted or state
end
if has_granted then
-- @include lib/fast/quiet-bucket-save
end
return pack('<' .. string.rep('d', at), unpack(reply))

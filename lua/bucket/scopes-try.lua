--[[
  scopes-try: a fast path of slots-draw for tries of calls with several keys or limits, all of them plain, in a bucket
  without shared limits. It has the same result in a fraction of the time. If anything about the bucket or a key is
  unusual, the script writes nothing and replies "". The caller then runs slots-draw.

  KEYS  as in slots-try
  ARGV  [1] the policy's text
        [2] numbers: pinned_us (0 in production) drew_us (0: a lost bucket starts full) version.
            Lists of limits {limits {code count period_us capacity}, how many of the keys have them, in their order}.
            Shapes of calls {for each key of such a call {the number of its list, costs}}, slot requests {wanted shape keys}
  Reply numbers, packed as doubles: now_us, generation, version, alive, source, per slot request: granted, used under each
        of its limits (of a window; else in cost x period). Or "", see above
]]
-- @include lib/time/now
-- @include lib/state/quiet
local function are_whole(first, second)
  return first % 1 == 0 and second % 1 == 0 and first >= 1 and second >= 1 and first < 2 ^ 53 and second < 2 ^ 53
end

-- This code uses only local variables and no function calls, because Lua itself takes half of the time for each key.
local text, read, pack, rep = ARGV[1], struct.unpack, struct.pack, string.rep
local numbers = { read('<' .. rep('d', #ARGV[2] / 8), ARGV[2]) }
if not (are_whole(numbers[1] + 1, numbers[2] + 1) and are_whole(numbers[3] + 1, 1)) then return '' end
-- @include lib/fast/quiet-bucket
-- @include lib/fast/scopes-found
-- @include lib/fast/scopes-shapes

local reply, to, at = { now, generation, own_version, math.max(1, alive, alive_before), source }, 5, next_at
local lives_us = {}
for _ = 1, numbers[next_at] do
  local wanted, shape = numbers[at + 1], shapes[numbers[at + 2]]
  if not (wanted >= 1 and wanted <= 1000000 and wanted % 1 == 0) then return '' end
  local granted, granted_at = wanted, to + 1
  at, to = at + 2, granted_at
-- @include lib/fast/scopes-take
  at, reply[granted_at] = at + #shape, granted
end

-- The expiry is passed as text: Redis takes longer to format a number than for the rest of the command.
local call, keys, has_granted, known_us, life_ms = redis.call, KEYS, false, nil, nil
for index = 1, #lists do
  local list = lists[index]
  for key = list.first, list.last do
    local life_us = lives_us[key]
    if life_us then
-- @include lib/fast/scopes-pack
      if life_us == 0 then
        call('SETRANGE', keys[key + 1], #state == 32 and '40' or '0', state)
      else
        if life_us ~= known_us then known_us, life_ms = life_us, string.format('%.0f', math.ceil(life_us / 1000) + 60000) end
        call('SET', keys[key + 1], state, 'PX', life_ms)
      end
      has_granted = true
    end
  end
end
if has_granted then
-- @include lib/fast/quiet-bucket-save
end
return pack('<' .. rep('d', to), unpack(reply))

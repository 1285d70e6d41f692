--[[
  scopes-try: a try for calls that have several keys or several limits, all of them plain, in a bucket without shared
  limits. It does what slots-draw does, in a fraction of the time. If anything about the bucket or a key is unusual, it
  writes nothing and replies "", and the caller runs slots-draw. Its twin is that of slots-draw.

  KEYS  as in slots-try
  ARGV  [1] the policy's text
        [2] numbers: pinned_us (0 in production) drew_us (0: a lost bucket starts full) version, lists of limits {limits
            {code count period_us capacity}}, per key: the number of its list, wishes {wanted, keys {number}, costs}
  Reply numbers, packed as doubles: now_us, generation, version, alive, is_override, per wish: granted, used under each
        of its limits (of a window; else in cost x period). Or "", see above
]]
-- @include lib/now
-- @include lib/state/quiet
-- Straight code without calls, on locals: Lua itself takes half of the time of each key.
local text, numbers, read, rep = ARGV[1], nil, struct.unpack, string.rep
numbers = { read('<' .. rep('d', #ARGV[2] / 8), ARGV[2]) }
for index = 1, #numbers do
  if numbers[index] % 1 ~= 0 or numbers[index] < 0 or numbers[index] >= 2 ^ 53 then return '' end
end
-- @include lib/fast/quiet-bucket
-- @include lib/fast/scopes-found

local reply, to, at = { now, generation, own_version, math.max(1, alive, alive_before), is_override }, 5, next_at
local lives_us = {}
for _ = 1, numbers[next_at] do
  local wanted, n_keys = numbers[at + 1], numbers[at + 2]
  if not (wanted >= 1 and wanted <= 1000000) then return '' end
  local granted, granted_at = wanted, to + 1
  to = granted_at
-- @include lib/fast/scopes-take
  reply[granted_at] = granted
end

local call, has_granted, known_us, life_ms = redis.call, false, nil, nil
for index = 1, #states do
  local state, life_us = states[index], lives_us[index]
  if life_us then
    has_granted = true
    state[lasts_at[index]] = now
    -- The expiry is passed as text: Redis takes longer to format a number than for the rest of the command.
    if life_us ~= known_us then known_us, life_ms = life_us, string.format('%.0f', math.ceil(life_us / 1000) + 60000) end
    call('SET', KEYS[index + 1], struct.pack(forms[index], unpack(state)), 'PX', life_ms)
  end
end
if has_granted then
-- @include lib/fast/quiet-bucket-save
end
return struct.pack('<' .. rep('d', to), unpack(reply))

-- A macro over the locals of scopes-try: reads the lists of limits and the states of all keys, in either form of
-- lib/state/pack. It reads numbers and now. It declares next_at, where the wishes begin in numbers; and per key its numbers
-- as in Redis (states), their form (forms), where its limits begin in those (limits_at), and where its last slot is
-- (lasts_at).
local lists, next_at = {}, 4
for index = 1, numbers[next_at] do
  local list, n_limits = { numbers[next_at + 1] }, numbers[next_at + 1]
  for limit = 0, n_limits - 1 do
    local from, to = next_at + 2 + limit * 4, 2 + limit * 7
    list[to], list[to + 1], list[to + 2], list[to + 3] = numbers[from], numbers[from + 1], numbers[from + 2], numbers[from + 3]
    list[to + 4], list[to + 5], list[to + 6] = 0, 0, 0
    if list[to] < 1 or list[to + 1] < 1 or list[to + 2] < 1 or list[to + 3] < 1 then return '' end
  end
  next_at, lists[index] = next_at + 1 + n_limits * 4, list
  list.short, list.long = '<' .. rep('d', #list + 1), '<' .. rep('d', #list + 10)
end
next_at = next_at + 1
local states, forms, limits_at, lasts_at, found = {}, {}, {}, {}, redis.call('MGET', unpack(KEYS, 2))
for index = 1, #found do
  local list, key_packed = lists[numbers[next_at + index - 1]], found[index]
  local size, is_long = #list + 1, false
  if key_packed then
    is_long = #key_packed == 8 * (size + 9)
    if not is_long and #key_packed ~= 8 * size then return '' end
    -- Behind the numbers, struct.unpack returns where it stopped.
    states[index] = { read(is_long and list.long or list.short, key_packed) }
    states[index][is_long and size + 10 or size + 1] = nil
    if is_long and not is_quiet(string.sub(key_packed, 9, 80), now) then return '' end
  else
    states[index] = { unpack(list) }
    states[index][size] = 0
  end
  local state, shift = states[index], is_long and 10 or 0
  limits_at[index], lasts_at[index], forms[index] = 2 + shift, is_long and 1 or size, is_long and list.long or list.short
  if state[lasts_at[index]] > now or state[1 + shift] ~= list[1] then return '' end
  for at = 2, #list, 7 do
    if state[at + shift] ~= list[at] or state[at + shift + 1] ~= list[at + 1] or state[at + shift + 2] ~= list[at + 2]
      or state[at + shift + 3] ~= list[at + 3] then
      return ''
    end
  end
end
next_at = next_at + #found

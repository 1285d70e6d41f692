-- A macro over the locals of scopes-try: reads the lists of limits, and the states of their keys in either form of lib/state/pack.
-- Reads: numbers, now.
-- Declares: next_at, where the shapes begin in numbers; per list, its limits and the packing of its keys; and a, b
-- and c for each limit of each key. The values of key number n of a list begin at list.base + n * #list.
local lists, next_at, n_keys, after, a, b, c, unusual_of = {}, 4, 0, 0, {}, {}, {}, {}
local found = redis.call('MGET', unpack(KEYS, 2))
for index = 1, numbers[next_at] do
  local n_limits, list = numbers[next_at + 1], {}
  for limit = 1, n_limits do
    local from = next_at + limit * 4 - 2
    local code, count, period_us, capacity = numbers[from], numbers[from + 1], numbers[from + 2], numbers[from + 3]
    if not (are_whole(code, count) and are_whole(period_us, capacity)) then return '' end
    local head = pack('<dddd', code, count, period_us, capacity)
    list[limit] = { code, count, period_us, capacity, limit == 1 and pack('<d', n_limits) .. head or head }
  end
  local body, size = 'c40ddd' .. rep('c32ddd', n_limits - 1), 16 + 56 * n_limits
  list.short, list.long, next_at = '<' .. body .. 'd', '<dc72' .. body, next_at + 2 + n_limits * 4
  list.first, list.last, list.base = n_keys + 1, n_keys + numbers[next_at], after + 1 - (n_keys + 1) * n_limits
  local short, own_head = list.short, list[1][5]
  for key = list.first, list.last do
    local key_packed, last_us = found[key], 0
    if not key_packed then
      for slot = after + 1, after + n_limits do a[slot], b[slot], c[slot] = 0, 0, 0 end
    elseif n_limits == 1 and #key_packed == size then
      local head
      head, a[after + 1], b[after + 1], c[after + 1], last_us = read(short, key_packed)
      if head ~= own_head then return '' end
    else
      local is_long = #key_packed == size + 72
      if not is_long and #key_packed ~= size then return '' end
      local row, at = { read(is_long and list.long or short, key_packed) }, is_long and 3 or 1
      for limit = 1, n_limits do
        local slot = after + limit
        if row[at] ~= list[limit][5] then return '' end
        a[slot], b[slot], c[slot], at = row[at + 1], row[at + 2], row[at + 3], at + 4
      end
      last_us = row[is_long and 1 or at]
      if is_long then
        unusual_of[key] = row[2]
        if not is_quiet(row[2], now) then return '' end
      end
    end
    if last_us > now then return '' end
    after = after + n_limits
  end
  n_keys, lists[index] = list.last, list
end

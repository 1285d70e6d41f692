-- A macro over the locals of scopes-try, for one key with granted calls: packs the key's state in its Redis format.
-- Reads: list, key, life_us, and what lib/fast/scopes-found declares.
-- Declares: state. For a key with one limit and an unchanged expiry, state has only the part after the limit.
local slot, unusual, state = list.base + key * #list, unusual_of[key], nil
if #list > 1 or unusual then
  local row, at = unusual and { now, unusual } or {}, unusual and 2 or 0
  for limit = 1, #list do
    row[at + 1], row[at + 2], row[at + 3], row[at + 4] = list[limit][5], a[slot], b[slot], c[slot]
    at, slot = at + 4, slot + 1
  end
  row[at + 1] = not unusual and now or nil
  state = pack(unusual and list.long or list.short, unpack(row))
elseif life_us > 0 then
  state = pack('<c40dddd', list[1][5], a[slot], b[slot], c[slot], now)
else
  state = pack('<dddd', a[slot], b[slot], c[slot], now)
end

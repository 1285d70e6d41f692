-- A macro over the locals of slots-try, for one key: reads its state, in either form of lib/state/pack.
-- It reads key_packed, now, code, count, period_us and capacity. It declares last_us; a, b and c of its one limit; and
-- `unusual`, the nine numbers of its scope from cool_until_us on, if the key has the long form.
local last_us, a, b, c, unusual = 0, 0, 0, 0, nil
if key_packed then
  local _, own_code, own_count, own_period_us, own_capacity
  if #key_packed == 72 then
    _, own_code, own_count, own_period_us, own_capacity, a, b, c, last_us = read('<ddddddddd', key_packed)
  elseif #key_packed == 144 then
    last_us, unusual, _, own_code, own_count, own_period_us, own_capacity, a, b, c = read('<dc72dddddddd', key_packed)
    if not is_quiet(unusual, now) then return '' end
  end
  if own_code ~= code or own_count ~= count or own_period_us ~= period_us or own_capacity ~= capacity then return '' end
end

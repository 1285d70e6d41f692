-- A macro over the locals of scopes-try, for one slot request: takes as many calls as all limits of its keys let start now. It
-- repeats the arithmetic of lib/fast/plain-try-take. x - x % 1 is a floor.
-- Reads: numbers, now, shape, granted, and at. The keys come after `at`.
-- Sets: reply and its length (to), granted, a, b, c, and lives_us, which is how much longer each key with granted
-- calls must live: 0 if it already expires at the right time.
local used_at = to
for each = 1, #shape do
  local part = shape[each]
  local slot = part.base + numbers[at + each] * part.n_limits
  for index = 1, part.n_limits do
    local limit, used, fit = part[index], 0, nil
    local code, count, period_us, capacity, cost = limit[1], limit[2], limit[3], limit[4], limit[5]
    if code == 5 then
      local start_us = limit[6]
      if a[slot] > start_us then return '' end
      if a[slot] == start_us then used = b[slot] end
      fit = (capacity - used) / cost
    elseif code == 1 then
      used = a[slot] < now and 0 or (a[slot] - now) * count + b[slot]
      fit = (capacity * period_us - used) / (cost * period_us)
    elseif code == 2 then
      local lacking, elapsed_us = a[slot], now - b[slot]
      used = elapsed_us >= lacking / count and 0 or lacking - count * elapsed_us
      local rest = used % period_us
      fit = (capacity - (used - rest) / period_us - (rest > 0 and 1 or 0)) / cost
    else
      return ''
    end
    if fit < granted then granted = fit < 0 and 0 or fit - fit % 1 end
    to, slot = to + 1, slot + 1
    reply[to] = used
  end
end
if granted > 0 then
  to = used_at
  for each = 1, #shape do
    local part, key = shape[each], numbers[at + each]
    local slot, life_us, is_kept = part.base + key * part.n_limits, lives_us[key] or 0, true
    for index = 1, part.n_limits do
      to = to + 1
      local limit, used, own_us = part[index], reply[to], nil
      local code, count, period_us, amount = limit[1], limit[2], limit[3], granted * limit[5]
      if code == 5 then
        is_kept = is_kept and used > 0
        used = used + amount
        a[slot], b[slot], own_us = limit[6], used, limit[6] + period_us - now
      elseif code == 1 then
        local empty_us, rest = a[slot], b[slot]
        if now - empty_us > (rest > 0 and 1 or 0) then empty_us, rest, c[slot] = now, 0, now end
        rest = rest + amount * period_us
        local fraction = rest % count
        empty_us = empty_us + (rest - fraction) / count
        used = empty_us < now and 0 or (empty_us - now) * count + fraction
        a[slot], b[slot], own_us, is_kept = empty_us, fraction, used / count, false
      else
        if now > b[slot] then
          if used == 0 then c[slot] = now end
          a[slot], b[slot] = used, now
        end
        a[slot] = a[slot] + amount * period_us
        used = a[slot] - count * (now - b[slot])
        own_us, is_kept = used / count, false
      end
      reply[to], slot = used, slot + 1
      if own_us > life_us then life_us = own_us end
    end
    -- Keeps the expiry of a key within its windows, because the key already expires at the right time.
    lives_us[key] = is_kept and (lives_us[key] or 0) or math.max(1, life_us)
  end
end

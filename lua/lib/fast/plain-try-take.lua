-- A macro over the locals of slots-try, for one key: takes as many calls as may start now from its one limit.
-- Reads: now, code, count, period_us, capacity, wanted, cost, a, b, c.
-- Sets: granted, excess, used, life_us, a, b, c.
-- It repeats the arithmetic of lib/limits for the kinds 1, 2 and 5 without function calls. Change them together, and also
-- plainStatus in src/core/limits, which reads `used`. x - x % 1 is a floor.
local step = cost * period_us
if code == 5 then
  local start_us = now - now % period_us
  if a > start_us then return '' end
  local is_new = start_us > a
  used, excess = is_new and 0 or b, -(2 ^ 52)
  local fit = (capacity - used) / cost
  fit = fit - fit % 1
  granted = fit < 0 and 0 or wanted < fit and wanted or fit
  -- Sets the expiry only for the first calls in a window. After that, the key already expires at the right time.
  if is_new or b == 0 then life_us = start_us + period_us - now end
  used = used + granted * cost
  if granted > 0 then a, b = start_us, used end
elseif code == 1 then
  excess = (a < now and 0 or (a - now) * count + b) + step - capacity * period_us
  local fit = -excess / step
  fit = excess > 0 and 0 or fit - fit % 1 + 1
  granted = wanted < fit and wanted or fit
  if granted > 0 then
    if now - a > (b > 0 and 1 or 0) then a, b, c = now, 0, now end
    local rest = b + granted * step
    b = rest % count
    a = a + (rest - b) / count
  end
  used = a < now and 0 or (a - now) * count + b
elseif code == 2 then
  local elapsed_us = now - b
  used, excess = elapsed_us >= a / count and 0 or a - count * elapsed_us, -(2 ^ 52)
  local part = used % period_us
  local fit = (capacity - (used - part) / period_us - (part > 0 and 1 or 0)) / cost
  fit = fit - fit % 1
  granted = fit < 0 and 0 or wanted < fit and wanted or fit
  if granted > 0 then
    if elapsed_us > 0 then
      if used == 0 then c = now end
      a, b = used, now
    end
    a = a + granted * step
    elapsed_us = now - b
    used = elapsed_us >= a / count and 0 or a - count * elapsed_us
  end
else
  return ''
end
if code < 5 then life_us = used / count end

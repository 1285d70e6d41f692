-- A macro over the locals of scopes-try, for one wish: takes as many calls as all limits of its keys let start now. It
-- repeats the arithmetic of lib/fast/plain-try-take. x - x % 1 is a floor.
-- It reads numbers, now, wanted, n_keys and at. It sets granted, and how far it has read (next_at); it adds to reply, and
-- notes the keys that were drawn from (is_drawn).
local cost_at, used_at = at + 2 + n_keys, to
for each = 1, n_keys do
  local key = numbers[at + 2 + each]
  local state = states[key]
  for limit = limits_at[key], limits_at[key] + state[limits_at[key] - 1] * 7 - 1, 7 do
    local code, count, period_us, capacity = state[limit], state[limit + 1], state[limit + 2], state[limit + 3]
    local a, b, used, fit = state[limit + 4], state[limit + 5], 0, nil
    cost_at, to = cost_at + 1, to + 1
    local cost = numbers[cost_at]
    if not (cost >= 1 and cost <= capacity) then return '' end
    if code == 5 then
      local start_us = now - now % period_us
      if a > start_us then return '' end
      if a == start_us then used = b end
      fit = (capacity - used) / cost
    elseif code == 1 then
      used = a < now and 0 or (a - now) * count + b
      fit = (capacity * period_us - used) / (cost * period_us)
    elseif code == 2 then
      local elapsed_us = now - b
      used = elapsed_us >= a / count and 0 or a - count * elapsed_us
      local part = used % period_us
      fit = (capacity - (used - part) / period_us - (part > 0 and 1 or 0)) / cost
    else
      return ''
    end
    if fit < granted then granted = fit < 0 and 0 or fit - fit % 1 end
    reply[to] = used
  end
end
if granted > 0 then
  cost_at, to = at + 2 + n_keys, used_at
  for each = 1, n_keys do
    local key = numbers[at + 2 + each]
    local state, life_us = states[key], 0
    for limit = limits_at[key], limits_at[key] + state[limits_at[key] - 1] * 7 - 1, 7 do
      local code, count, period_us, own_us = state[limit], state[limit + 1], state[limit + 2], 0
      cost_at, to = cost_at + 1, to + 1
      local used, amount = reply[to], granted * numbers[cost_at]
      if code == 5 then
        used = used + amount
        state[limit + 4], state[limit + 5] = now - now % period_us, used
        own_us = state[limit + 4] + period_us - now
      elseif code == 1 then
        local a, b = state[limit + 4], state[limit + 5]
        if now - a > (b > 0 and 1 or 0) then a, b, state[limit + 6] = now, 0, now end
        local rest = b + amount * period_us
        state[limit + 5] = rest % count
        a = a + (rest - rest % count) / count
        state[limit + 4] = a
        used = a < now and 0 or (a - now) * count + state[limit + 5]
        own_us = used / count
      else
        if now > state[limit + 5] then
          if used == 0 then state[limit + 6] = now end
          state[limit + 5] = now
          state[limit + 4] = used
        end
        state[limit + 4] = state[limit + 4] + amount * period_us
        used = state[limit + 4] - count * (now - state[limit + 5])
        own_us = used / count
      end
      reply[to] = used
      if own_us > life_us then life_us = own_us end
    end
    lives_us[key] = life_us
  end
end
at = cost_at

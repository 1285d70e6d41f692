-- Tracks the health of an endpoint: the time of its first failure, its failures in a row, and its circuit breaker. A
-- success clears all three. A warning occurs once when each of these shares of the time until the endpoint is
-- disabled has passed.

local WARN_AT = { 0.9, 0.7, 0.5 }

-- Returns the ms for which the endpoint's jobs wait, an event ("recovered", "failing", "disabled") or "", and the
-- time of the first failure.
local function note_health(health, seen, rules, now)
  -- A healthy endpoint has no hash, so there is nothing to update.
  if seen ~= 'bad' and redis.call('EXISTS', health) == 0 then return 0, '', 0 end
  local since, streak, opens, warned, open_until = unpack(
    redis.call('HMGET', health, 'since', 'streak', 'opens', 'warned', 'open_until'))
  since, streak, opens, warned = tonumber(since or 0), tonumber(streak or 0), tonumber(opens or 0), tonumber(warned or 0)
  if seen == 'same' then return 0, '', since end
  if seen == 'ok' then
    redis.call('DEL', health)
    return 0, (opens > 0 or warned > 0) and 'recovered' or '', 0
  end
  if since == 0 then since = now end
  local fields, wait_ms, event = { 'since', since, 'streak', streak + 1 }, 0, ''
  if tonumber(open_until or 0) > now then
    -- The attempt began before the breaker opened, so it does not extend the wait.
    wait_ms = open_until - now
  elseif streak + 1 >= rules.failures then
    wait_ms = math.min(rules.most_open_ms, rules.open_ms * 2 ^ math.min(opens, 20))
    for _, field in ipairs({ 'open_until', string.format('%.0f', now + wait_ms), 'opens', opens + 1, 'probe_until', 0 }) do
      fields[#fields + 1] = field
    end
  end
  local share = (now - since) / rules.disable_after
  if share >= 1 then
    event = 'disabled'
  else
    for _, bound in ipairs(WARN_AT) do
      if share >= bound and event == '' and warned < bound * 100 then
        event = 'failing'
        fields[#fields + 1] = 'warned'
        fields[#fields + 1] = bound * 100
      end
    end
  end
  redis.call('HSET', health, unpack(fields))
  redis.call('PEXPIRE', health, math.max(rules.ttl, 2 * rules.disable_after))
  return wait_ms, event, since
end

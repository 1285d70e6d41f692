-- Changes a scope, for instance pauses it. Each change returns true if slots that replicas already hold become
-- invalid.

-- The rate directly after a cooldown, in per mille of the full rate.
local RAMP_FROM = 250

-- Returns the time of the last booked slot. Calls up to this time still have the rate from before the change, and so
-- do their responses.
local function handed_out_until_us(scope, now_us)
  return math.max(now_us, scope.last_us)
end

-- Starts a cooldown of duration_us, during which no call starts and a cut rate does not recover. Returns false if the
-- current cooldown lasts that long already.
local function start_nothing(scope, now_us, duration_us)
  local until_us = now_us + duration_us
  if duration_us == 0 or until_us <= scope.cool_until_us then return false end
  scope.factor = factor_at(scope, now_us)
  scope.cool_until_us, scope.since_us = until_us, until_us
  return true
end

local CHANGES = {
  pause = function(scope, now_us, next_number)
    local duration_us = next_number()
    scope.paused_until_us = duration_us == 0 and 0 or now_us + duration_us
    return true
  end,
  space = function(scope, now_us, next_number)
    scope.gap_us, scope.gap_until_us = next_number(), now_us + next_number()
    return false
  end,
  cool = function(scope, now_us, next_number)
    local duration_us, ramp_us, slot_us = next_number(), next_number(), next_number()
    if not start_nothing(scope, now_us, duration_us) then return false end
    scope.factor = math.min(RAMP_FROM, scope.factor)
    scope.recover_us = ramp_us
    if slot_us <= scope.cut_us then return false end
    scope.cut_us = handed_out_until_us(scope, now_us)
    return true
  end,
  cut = function(scope, now_us, next_number)
    local factor, floor, recover_us = next_number(), next_number(), next_number()
    local duration_us, slot_us = next_number(), next_number()
    local is_new = slot_us > scope.cut_us
    if is_new then
      scope.cut_us = handed_out_until_us(scope, now_us)
      local since_us = math.max(now_us, scope.cool_until_us)
      scope.factor = math.max(floor, math.floor((factor_at(scope, since_us) * factor) / 1000))
      scope.since_us, scope.recover_us = since_us, recover_us
    end
    start_nothing(scope, now_us, duration_us)
    return is_new
  end,
}

-- Makes a policy active: from the code (0), by an operator (1) or from rules (2). With does_yield, the current policy
-- stays if an operator set it, or if it is the same. Returns true if slots that were granted become invalid.
local function configure(bucket, terms, version, source, does_yield)
  if does_yield then
    local is_same = bucket.source == source and (source == 0 or bucket.text == terms.text)
    if bucket.source == 1 or is_same then return false end
  end
  put_in_force(bucket, terms, version)
  bucket.source = source
  return true
end

-- What a scope can be told. Twin of changeScope in src/core/steer.ts. Each returns whether slots that
-- were handed out before are worthless now.
local RAMP_FROM = 250

-- Calls on slots that other replicas hold leave before they hear of the change.
local function handed_out_until_us(scope, now_us)
  return math.max(now_us, scope.last_us)
end

local CHANGES = {
  pause = function(scope, now_us, next_number)
    local for_us = next_number()
    scope.paused_until_us = for_us == 0 and 0 or now_us + for_us
    return true
  end,
  space = function(scope, now_us, next_number)
    scope.gap_us, scope.gap_until_us = next_number(), now_us + next_number()
    return false
  end,
  cool = function(scope, now_us, next_number)
    local until_us, ramp_us, slot_us = now_us + next_number(), next_number(), next_number()
    local is_new = slot_us > scope.cut_us and until_us > scope.cool_until_us
    if is_new then scope.cut_us = handed_out_until_us(scope, now_us) end
    if until_us <= scope.cool_until_us then return false end
    scope.cool_until_us = until_us
    -- A rate does not grow back while nothing is sent.
    scope.factor = math.min(ramp_us > 0 and RAMP_FROM or 1000, factor_at(scope, now_us))
    scope.since_us = until_us
    if ramp_us > 0 then scope.recover_us = ramp_us end
    return is_new
  end,
  cut = function(scope, now_us, next_number)
    local factor, floor, recover_us, slot_us = next_number(), next_number(), next_number(), next_number()
    if slot_us <= scope.cut_us then return false end
    scope.cut_us = handed_out_until_us(scope, now_us)
    local since_us = math.max(now_us, scope.cool_until_us)
    scope.factor = math.max(floor, math.floor((factor_at(scope, since_us) * factor) / 1000))
    scope.since_us, scope.recover_us = since_us, recover_us
    return true
  end,
}

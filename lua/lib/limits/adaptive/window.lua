-- Computes an adaptive concurrency limit. Calls that end add their latencies to a window, which all replicas share. The
-- script that closes a window computes the limit, so it changes once for all replicas.
--
-- A gradient limiter, after Gradient2 of Netflix's concurrency-limits: the limit grows while the latency of a window is
-- close to the baseline, and shrinks to limit * baseline / latency, by Little's law. Two measures keep the baseline
-- true. If a smaller limit does not lower the latency, the calls are not its cause, so the baseline rises to it. And
-- one window now and then runs with three quarters of the limit, as in the ProbeRTT phase of BBR.

-- The state, in the order in which Redis stores it.
local ADAPTIVE = {
  -- How many calls may run at once.
  'bound',
  -- The computed limit in thousandths. The bound differs from it in a probe and in shadow.
  'value',
  -- The latency without a queue, 0 before the second window, and the mean latency of the last window.
  'base_us', 'recent_us',
  -- What happens now, and why the value is what it is, by its number in REASON.
  'phase', 'reason',
  -- How many windows were closed.
  'windows',
  -- When the open window begins to count, and what it has counted.
  'opens_us', 'calls', 'drops', 'sum', 'squares', 'in_flight',
  -- How much the value grows next, in thousandths of it.
  'step',
  -- The value that was too high last, and the number of the window until which it is not tried again.
  'ceiling', 'ceiling_until',
  -- The value and the latency before the value was lowered. They are 0 if it is not being lowered.
  'from_value', 'from_us',
  -- When the next probe is due.
  'probe_us',
}
local CALIBRATING, ADAPTING, PROBING = 1, 2, 3
local REASON = { calibrating = 1, raised = 2, held = 3, unused = 4, latency = 5, drops = 6, baseline = 7, probe = 8 }

local KEEP_ADAPTIVE_MS = 3600000
-- The first window is ignored, because in it mostly short calls end.
local CALIBRATION_WINDOWS = 3
-- A window lasts at least LEAST_WINDOW_US, and until it has LEAST_CALLS calls and the standard error of its mean is
-- EXACT of the mean. After LONGEST_WINDOW_US, or ten times the latency, FEW_CALLS calls are enough.
local LEAST_WINDOW_US, LONGEST_WINDOW_US, LEAST_CALLS, FEW_CALLS, EXACT = 50000, 1000000, 20, 5, 0.02
-- More drops than this part of the calls lower the limit, to this part of it.
local FEW_DROPS, AFTER_DROPS = 0.01, 0.9
local LEAST_STEP, MOST_STEP, LEAST_RAISE = 20, 250, 500
-- A value that was too high is not tried again for FIRST_CEILING windows, because a single window may be slow by
-- chance. If a value within CEILING_RANGE of the last ceiling is too high again, it is not tried for CEILING windows.
local FIRST_CEILING, CEILING, CEILING_RANGE = 2, 10, 0.15
-- A lowered limit shows whether the calls cause the latency once it is at most this part of the former limit.
local LOWERED = 0.75
local PROBE_EVERY_US, PROBE_EVERY_WINDOWS = 10000000, 20

local function round(number)
  return math.floor(number + 0.5)
end

local function new_adaptive(limit, now_us)
  local state = {}
  for _, name in ipairs(ADAPTIVE) do state[name] = 0 end
  state.bound = limit.terms.is_shadow and limit.count or limit.terms.initial
  state.value, state.phase, state.reason, state.step = limit.terms.initial * 1000, CALIBRATING, REASON.calibrating, LEAST_STEP
  state.opens_us = now_us
  return state
end

local function unpack_adaptive(packed)
  local numbers, state = { struct.unpack('<' .. string.rep('d', #ADAPTIVE), packed) }, {}
  for index, name in ipairs(ADAPTIVE) do state[name] = numbers[index] end
  return state
end

local function load_adaptive(limit, now_us)
  local packed = redis.call('GET', limit.keys[3])
  return packed and #packed == #ADAPTIVE * 8 and unpack_adaptive(packed) or new_adaptive(limit, now_us)
end

local function save_adaptive(limit, state)
  local numbers = {}
  for index, name in ipairs(ADAPTIVE) do numbers[index] = state[name] end
  local packed = struct.pack('<' .. string.rep('d', #ADAPTIVE), unpack(numbers))
  redis.call('SET', limit.keys[3], packed, 'PX', KEEP_ADAPTIVE_MS)
end

-- Returns the mean latency of the open window, and the square of its standard error. Infinite if no call succeeded.
local function mean_of(state)
  local calls = state.calls
  if calls == 0 then return math.huge, 0 end
  local mean = state.sum / calls
  return mean, math.max(0, state.squares / calls - mean * mean) / calls
end

-- True if a latency exceeds another one by more than the standard error.
local function exceeds(latency_us, other_us, variance)
  return latency_us > other_us and (latency_us - other_us) ^ 2 > variance
end

local function usual_us(state)
  return math.max(state.recent_us, LEAST_WINDOW_US)
end

local function is_complete(state, now_us)
  local total, open_us = state.calls + state.drops, now_us - state.opens_us
  if total < FEW_CALLS or open_us < usual_us(state) then return false end
  if open_us >= math.max(LONGEST_WINDOW_US, 10 * usual_us(state)) then return true end
  local mean, variance = mean_of(state)
  return total >= LEAST_CALLS and (state.calls == 0 or variance <= (EXACT * mean) ^ 2)
end

local function set_ceiling(state)
  local was_near = math.abs(state.value - state.ceiling) <= CEILING_RANGE * state.ceiling
  state.ceiling, state.ceiling_until = state.value, state.windows + (was_near and CEILING or FIRST_CEILING)
  state.step = LEAST_STEP
end

-- Lowers the value after a window that was too slow, or raises the baseline if lowering did not help. `load` is the
-- number of calls in flight in the window, in thousandths.
local function lower(limit, state, load, recent_us)
  local least = limit.terms.min * 1000
  if load <= least then
    state.base_us, state.reason = state.base_us + (recent_us - state.base_us) / 4, REASON.baseline
    return
  end
  if state.from_us > 0 and load <= LOWERED * state.from_value then
    local predicted_us = math.max(state.base_us, state.from_us * load / state.from_value)
    if recent_us > (state.from_us + predicted_us) / 2 and not limit.terms.is_shadow then
      state.base_us, state.value, state.reason = recent_us, state.from_value, REASON.baseline
      state.from_us, state.step = 0, LEAST_STEP
      return
    end
    state.from_value, state.from_us = load, recent_us
  elseif state.from_us == 0 then
    state.from_value, state.from_us = load, recent_us
  end
  set_ceiling(state)
  state.value, state.reason = load * math.max(0.5, state.base_us / recent_us), REASON.latency
end

local function raise(state)
  state.from_us = 0
  local raised = state.value + math.max(LEAST_RAISE, state.value * state.step / 1000)
  if raised >= state.ceiling and state.windows < state.ceiling_until then
    state.reason = REASON.held
    return
  end
  state.value, state.step, state.reason = raised, math.min(MOST_STEP, 2 * state.step), REASON.raised
end

local function calibrate(state, recent_us, now_us)
  -- A window in which the downstream dropped all calls has no latency.
  if state.calls == 0 then
    state.windows = state.windows - 1
    return
  end
  if state.windows == 2 then state.base_us = recent_us end
  if state.windows < CALIBRATION_WINDOWS then return end
  -- The mean of both windows, because the lower one is often too low by chance.
  local _, variance = mean_of(state)
  local has_fallen = exceeds(state.base_us, recent_us, 4 * variance)
  state.base_us = has_fallen and recent_us or (state.base_us + recent_us) / 2
  state.phase, state.probe_us = ADAPTING, now_us
end

-- Lets the next window run with three quarters of the limit, unless that is below the minimum.
local function begin_probe(limit, state, recent_us)
  if math.floor(LOWERED * state.value / 1000) < limit.terms.min then return end
  state.phase, state.from_value, state.from_us = PROBING, state.value, recent_us
end

-- Compares the latency at three quarters of the limit with the latency before.
local function end_probe(limit, state, recent_us, now_us)
  local part = state.bound * 1000 / state.value
  local has_queued = recent_us < state.from_us * (1 + part) / 2
  state.phase, state.reason, state.from_us = ADAPTING, REASON.probe, 0
  if has_queued then
    -- The former baseline was too high. The new one may be too, so the next window probes again.
    state.base_us, state.value, state.probe_us = math.min(state.base_us, recent_us), state.bound * 1000, now_us
    begin_probe(limit, state, recent_us)
  else
    state.base_us = (state.base_us + recent_us) / 2
    state.probe_us = now_us + math.max(PROBE_EVERY_US, PROBE_EVERY_WINDOWS * usual_us(state))
  end
end

local function adapt(limit, state, now_us)
  local recent_us, variance = mean_of(state)
  local tolerance, total = limit.terms.tolerance, state.calls + state.drops
  local load = math.min(state.value, state.in_flight * 1000)
  if state.drops > FEW_DROPS * total then
    set_ceiling(state)
    state.value, state.from_us, state.phase, state.reason = load * AFTER_DROPS, 0, ADAPTING, REASON.drops
    return
  end
  if state.phase == PROBING then return end_probe(limit, state, recent_us, now_us) end
  if exceeds(state.base_us, recent_us, variance) then state.base_us = state.base_us + (recent_us - state.base_us) / 4 end
  local middle_us = state.base_us * (1 + tolerance) / 2
  if state.in_flight * 2000 < state.value then
    state.reason, state.step, state.from_us = REASON.unused, LEAST_STEP, 0
  elseif exceeds(recent_us, tolerance * state.base_us, variance) then
    return lower(limit, state, load, recent_us)
  elseif exceeds(recent_us, middle_us, variance) then
    set_ceiling(state)
    state.value, state.from_us, state.reason = state.value * middle_us / recent_us, 0, REASON.held
  else
    raise(state)
  end
  if now_us < state.probe_us or state.reason == REASON.unused or limit.terms.is_shadow then return end
  begin_probe(limit, state, recent_us)
end

-- Sets how many calls may run, and opens the next window. If the number changes, the window opens one latency later,
-- when most calls that end have started under the new number.
local function open_window(limit, state, now_us)
  local terms, before = limit.terms, state.bound
  state.value = round(math.min(limit.count * 1000, math.max(terms.min * 1000, state.value)))
  state.base_us = round(state.base_us)
  state.bound = round(state.value / 1000)
  if terms.is_shadow then
    state.bound = limit.count
  elseif state.phase == PROBING then
    state.bound = math.max(terms.min, math.floor(LOWERED * state.value / 1000))
  end
  state.opens_us = now_us + (state.bound ~= before and state.recent_us or 0)
  state.calls, state.drops, state.sum, state.squares, state.in_flight = 0, 0, 0, 0, 0
end

-- Adds the latencies of calls that have ended, in µs: below 0 for a call that the downstream dropped, 0 for a call
-- that says nothing. `in_flight` is the number of calls before they ended. Returns the state, and whether a window was
-- closed.
local function add_latencies(limit, latencies, in_flight, now_us)
  local state = load_adaptive(limit, now_us)
  if now_us < state.opens_us then return state, false end
  state.in_flight = math.max(state.in_flight, in_flight)
  for _, latency_us in ipairs(latencies) do
    if latency_us > 0 then
      state.calls, state.sum, state.squares = state.calls + 1, state.sum + latency_us, state.squares + latency_us * latency_us
    elseif latency_us < 0 then
      state.drops = state.drops + 1
    end
  end
  local is_closed = is_complete(state, now_us)
  if is_closed then
    state.windows = state.windows + 1
    local recent_us = mean_of(state)
    if recent_us < math.huge then state.recent_us = round(recent_us) end
    if state.phase == CALIBRATING then calibrate(state, state.recent_us, now_us) else adapt(limit, state, now_us) end
    open_window(limit, state, now_us)
  end
  save_adaptive(limit, state)
  return state, is_closed
end

-- Returns how many calls may run at once under the options of this request.
local function bound_in(limit, state)
  return limit.terms.is_shadow and limit.count or math.min(limit.count, math.max(limit.terms.min, state.bound))
end

-- Returns the state for a reply, after the number of the limit.
local function report_adaptive(number, state)
  local report = { number }
  for index, name in ipairs(ADAPTIVE) do report[index + 1] = round(state[name]) end
  return report
end

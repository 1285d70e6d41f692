-- Returns the delay of a job that is due at due_ms, counted from when it was stored. Never returns exactly ten seconds,
-- because that delay marks a job on its way to its lane.
local function delay_from(due_ms, stored_at_ms)
  local delay_ms = math.max(0, due_ms - stored_at_ms)
  return delay_ms == 10000 and 10001 or delay_ms
end

-- Returns a job's options with a new due time. Also moves the deadline for the start, because it counts from the due
-- time.
local function with_due(stored_opts, due_ms, delay_ms)
  local opts = cjson.decode(stored_opts)
  opts.delay = delay_ms > 0 and delay_ms or nil
  local ours = opts.sluice
  if type(ours) == 'table' and ours.startByMs then ours.startByMs = due_ms + ours.maxWaitMs end
  return cjson.encode(opts)
end

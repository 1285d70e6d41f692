-- How soon a child is checked for the first time, because the message that a parent has ended may be lost.
local CHECK_MS = 5000

-- Makes a job wait for its parents. It is among the delayed jobs, and take() delays it again when its time comes.
local function hold(lanes, id)
  local flows = flow_names(lanes.jobs)
  redis.call('HSET', lanes.jobs .. id, 'sluice:awaits', 1)
  redis.call('ZADD', lanes.delayed, string.format('%.0f', (lanes.now_ms + DAY_MS) * 4096), id)
  redis.call('ZADD', flows.waiting, string.format('%.0f', lanes.now_ms + CHECK_MS), id)
end

-- Stores what a new job waits for. Flow is { parents: [parent, outcome or ""], onFailure, open, producerTimeoutMs, hold,
-- weights }. An outcome is known already for a parent that is no longer stored. Returns whether the job must wait, and
-- whether it is cancelled because a parent was.
local function store_flow(lanes, id, flow)
  local flows, pending, is_cancelled = flow_names(lanes.jobs), flow.open and 1 or 0, false
  local job = lanes.jobs .. id
  redis.call('HSET', job, 'sluice:parents', flow.onFailure, 'sluice:hold', flow.hold, 'sluice:count', #flow.parents)
  if flow.open then redis.call('HSET', job, 'sluice:open', 1) end
  if flow.producerTimeoutMs then redis.call('HSET', job, 'sluice:announced', flow.producerTimeoutMs) end
  if flow.weights then redis.call('HSET', job, 'sluice:weights', cjson.encode(flow.weights)) end
  redis.call('UNLINK', flows.awaited .. id, flows.outcomes .. id)
  for index, parent in ipairs(flow.parents) do
    if parent[2] == '' then
      redis.call('ZADD', flows.awaited .. id, index, parent[1])
      pending = pending + 1
    else
      is_cancelled = is_cancelled or parent[2] == 'c' and flow.onFailure ~= 'run'
      redis.call('HSET', flows.outcomes .. id, parent[1], parent[2] .. ' ' .. index .. ' ')
    end
  end
  redis.call('HSET', lanes.state, 'flows', 1)
  return pending > 0, is_cancelled
end

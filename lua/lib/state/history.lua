-- The history of a bucket: the calls and the waiting callers in each time step. One key holds an hour, because a key
-- for each step would need ten times the memory. `times` contains now, the step, and how long it is kept, in ms.
local HOUR_MS = 3600000

local function step_of(prefix, at_ms, times)
  return prefix .. math.floor(at_ms / HOUR_MS), math.floor(at_ms % HOUR_MS / times.step_ms)
end

-- Adds the numbers of started and rejected calls.
local function add_calls(prefix, times, started, refused)
  if started + refused == 0 then return end
  local key, step = step_of(prefix, times.now, times)
  if started > 0 then redis.call('HINCRBY', key, step, started) end
  if refused > 0 then redis.call('HINCRBY', key, 'r' .. step, refused) end
  redis.call('PEXPIRE', key, times.kept_ms + HOUR_MS)
end

-- Adds callers that waited for some ms of a step, by rank. A step stores the average number of waiting callers, in
-- hundredths, as "c,h,n,l".
local function add_to_step(prefix, at_ms, times, waited, ms)
  local key, step = step_of(prefix, at_ms, times)
  local sums, rank = {}, 0
  for sum in string.gmatch((redis.call('HGET', key, step) or ',,,') .. ',', '(%d*),') do
    rank = rank + 1
    local more = math.floor((tonumber(waited[rank]) or 0) * ms * 100 / times.step_ms + 0.5)
    local all = (tonumber(sum) or 0) + more
    sums[rank] = all > 0 and string.format('%.0f', all) or ''
  end
  redis.call('HSET', key, step, table.concat(sums, ','))
  redis.call('PEXPIRE', key, times.kept_ms + HOUR_MS)
end

-- Adds callers that have waited for this long until now, by rank, as "c,h,n,l". They count in this step and up to three
-- earlier ones. The values of all replicas are added up, so no replica needs to know which others are running.
local function add_waits(prefix, times, counts, for_ms)
  if counts == '' then return end
  local waited, part_ms = {}, times.now % times.step_ms
  for count in string.gmatch(counts .. ',', '([%d.]*),') do waited[#waited + 1] = count end
  for back = 0, 3 do
    local ms = math.min(for_ms, part_ms)
    if ms > 0 then add_to_step(prefix, times.now - back * times.step_ms, times, waited, ms) end
    for_ms, part_ms = for_ms - ms, times.step_ms
  end
end

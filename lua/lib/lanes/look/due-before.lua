-- Reads the delayed jobs that become due before a given job, in groups of about the same time, the earliest first.

local MOST_GROUPS = 32
-- The most delayed jobs to read, because Redis is blocked during the read.
local MOST_DUE = 1000

-- Adds a job to the counts of its key in a group: the number of jobs, and their cost in calls. The key is '' for jobs
-- without a key.
local function add_to_group(group, key, share)
  local of_key = group.keys[key]
  if not of_key then
    of_key = { key, 0, 0 }
    group.keys[key], group.list[#group.list + 1] = of_key, of_key
  end
  of_key[2], of_key[3] = of_key[2] + 1, of_key[3] + share
end

local function priority_of(prefix, id)
  return tonumber(redis.call('HGET', prefix .. id, 'priority')) or 0
end

-- Counts the jobs that are at least as urgent as a given one: in the lane of its key, or among the jobs with a priority
-- that wait to be fetched.
local function more_urgent(lanes, prefix, prioritized, id, key)
  local names, unit = prioritized, 2 ^ 32
  if key then names, unit = lanes.lane .. key, 2 ^ 48 end
  return redis.call('ZCOUNT', names, '-inf', '(' .. string.format('%.0f', (priority_of(prefix, id) + 1) * unit))
end

-- Counts all delayed jobs before the given one. Among the jobs of its own key, counts only those that are at least as
-- urgent. Also returns an estimate of how many jobs were not read.
local function due_before(lanes, prefix, delayed, asked, now)
  local own_key, own_priority = key_of(redis.call('HGET', prefix .. asked, 'name')) or '', priority_of(prefix, asked)
  local until_score = '(' .. redis.call('ZSCORE', delayed, asked)
  local range = redis.call('ZRANGEBYSCORE', delayed, '-inf', until_score, 'WITHSCORES', 'LIMIT', 0, MOST_DUE)
  local found = {}
  for at = 1, #range, 2 do
    local id = range[at]
    local name, opts, priority = unpack(redis.call('HMGET', prefix .. id, 'name', 'opts', 'priority'))
    local key = name and key_of(name) or ''
    -- Skips jobs parked in lanes, which are delayed by a day.
    if name and not (key ~= '' and redis.call('ZSCORE', lanes.lane .. key, id)) then
      local is_behind = key == own_key and (tonumber(priority) or 0) > own_priority
      found[#found + 1] = { math.floor(tonumber(range[at + 1]) / 4096), key, is_behind and 0 or share_in(opts), is_behind }
    end
  end
  local groups, size = {}, math.ceil(#found / MOST_GROUPS)
  for at, job in ipairs(found) do
    if (at - 1) % size == 0 then groups[#groups + 1] = { keys = {}, list = {}, sum_ms = 0, jobs = 0 } end
    local group = groups[#groups]
    group.sum_ms, group.jobs = group.sum_ms + job[1], group.jobs + 1
    if not job[4] then add_to_group(group, job[2], job[3]) end
  end
  local list = {}
  for at, group in ipairs(groups) do list[at] = { math.max(0, group.sum_ms / group.jobs - now), group.list } end
  local looked_at = #range / 2
  if looked_at < MOST_DUE then return list, 0 end
  -- Estimates the rest: assumes the same share of parked jobs among the unread ones, and at most as many jobs as are
  -- delayed in total.
  local rest = redis.call('ZCOUNT', delayed, '-inf', until_score) - looked_at
  local parked = tonumber(redis.call('HGET', lanes.state, 'parked')) or 0
  local all = redis.call('ZCARD', delayed) - parked - #found
  return list, math.max(0, math.min(math.floor(rest * #found / looked_at), all))
end

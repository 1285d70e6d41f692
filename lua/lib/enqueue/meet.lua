-- @include lib/lanes/states/unended
-- What a new job meets: the job that has its id, or its dedupeId, already.

-- The job that holds a dedupeId, or nil. With a dedupeMs it holds it after its end too, for those that keep the first. A
-- job that runs still holds it if the one that was to follow it has been removed.
local function holder_of(lanes, dedupe)
  local place = lanes.jobs .. 'de:' .. dedupe.id
  local id = redis.call('GET', place)
  if id and is_unended(lanes, id) then return id end
  if id and dedupe.mode == 'first' and redis.call('PTTL', place) > 0 then return id end
  local followed = redis.call('HGET', lanes.jobs .. 'again:' .. dedupe.id, 'of')
  return followed and is_unended(lanes, followed) and followed or nil
end

-- What is to be done with a new job, and with which stored one: 'keep' that one, 'replace' its data, store the new one
-- to run 'after' it; or 'add' the new one.
local function meet(lanes, job)
  if job.id and redis.call('HEXISTS', lanes.jobs .. job.id, 'name') == 1 then return 'keep', job.id end
  local holder = job.dedupe and holder_of(lanes, job.dedupe)
  if not holder then return 'add' end
  if job.dedupe.mode == 'first' then return 'keep', holder end
  if not redis.call('LPOS', lanes.active, holder) then return 'replace', holder end
  if job.dedupe.mode == 'last' then return 'add' end
  return 'after', holder
end

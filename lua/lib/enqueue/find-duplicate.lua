-- @include lib/lanes/states/unended
-- Finds the stored job that has the same id or dedupeId as a new job.

-- Returns the job that holds a dedupeId, or nil. With a dedupeMs, a job whose mode keeps the first job still holds
-- the dedupeId after its end. A running job also holds it if the job that should follow it was removed.
local function holder_of(lanes, dedupe)
  local place = lanes.jobs .. 'de:' .. dedupe.id
  local id = redis.call('GET', place)
  if id and is_unended(lanes, id) then return id end
  if id and dedupe.mode == 'first' and redis.call('PTTL', place) > 0 then return id end
  local followed = redis.call('HGET', lanes.jobs .. 'again:' .. dedupe.id, 'of')
  return followed and is_unended(lanes, followed) and followed or nil
end

-- Decides what happens to a new job. Returns "keep" and the stored job that stays, "replace" and the job whose data
-- is replaced, "after" and the job that must end first, or "add".
local function meet(lanes, job)
  if job.row and redis.call('ZSCORE', lanes.rows, job.row) then return 'keep', job.id end
  if job.id and redis.call('HEXISTS', lanes.jobs .. job.id, 'name') == 1 then return 'keep', job.id end
  local holder = job.dedupe and holder_of(lanes, job.dedupe)
  if not holder then return 'add' end
  if job.dedupe.mode == 'first' then return 'keep', holder end
  if not redis.call('LPOS', lanes.active, holder) then return 'replace', holder end
  if job.dedupe.mode == 'last' then return 'add' end
  return 'after', holder
end

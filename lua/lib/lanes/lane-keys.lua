-- Returns the Redis keys that store a queue's lanes.
local function lane_names(prefix)
  local own = prefix .. 'lanes:'
  return {
    state = own .. 'state', lane = own .. 'of:', ready = own .. 'ready', blocked = own .. 'blocked',
    finish = own .. 'finish', slow = own .. 'slow', weights = own .. 'weights',
    shares = own .. 'shares', deadlines = own .. 'deadlines', uncleared = own .. 'uncleared',
    held = own .. 'held:', paused = own .. 'paused', ordered = own .. 'ordered', heads = own .. 'heads',
    below = own .. 'below',
  }
end

-- Returns the key of a job, which BullMQ's job name contains; nil without a key.
local function key_of(name)
  return string.match(name, '^key (.*)$')
end

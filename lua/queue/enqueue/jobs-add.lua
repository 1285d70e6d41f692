--[[
  jobs-add: stores new jobs, in their order, of which some may have an id or a dedupeId that another job has already. If
  too many jobs would wait, none is stored.

  KEYS  all BullMQ's: [1] wait  [2] delayed  [3] events  [4] meta  [5] marker  [6] prioritized  [7] active  [8] pc
        [9] id
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] request: JSON: { most: { all: how many jobs may wait, perKey: how many of one key }, none for no bound;
            jobs: for each { id of its own, name, opts as JSON, timestamp, delay, priority, whether it is to be parked
            (isParked) in its lane and its weights as in lanes-join, dedupe: { id, mode: first, last or again, ttl in ms
            } } }
        [3…] json: the data of each job, as JSON
  Reply if there is no room: how many jobs wait, the bound, and the key that it is for, "" for all. Else for each job its
        id, 1 if it is new or 0, and the hash of what is stored if it is not new: empty if it is no longer kept; 0 once
        those before it are large
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/join
-- @include lib/lanes/weigh
-- @include lib/enqueue/add

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.prioritized, lanes.active, lanes.counter, lanes.ids = KEYS[6], KEYS[7], KEYS[8], KEYS[9]

-- How many characters of hashes a reply has, or one hash more.
local MOST_CHARACTERS = 4000000

local given, reply = cjson.decode(ARGV[2]), {}
lanes.bounds_keys = given.most and given.most.perKey
local full = given.most and is_full(lanes, given.most, given.jobs)
if full then return full end
local characters = 0
local function read(id)
  if characters > MOST_CHARACTERS then return 0 end
  local fields = redis.call('HGETALL', lanes.jobs .. id)
  for _, field in ipairs(fields) do characters = characters + #field end
  return fields
end

for at, job in ipairs(given.jobs) do
  job.data = ARGV[at + 2]
  local id, is_new = add(lanes, job)
  reply[#reply + 1], reply[#reply + 2] = id, is_new and 1 or 0
  reply[#reply + 1] = is_new and {} or read(id)
end
if lanes.has_joined then close_lanes(lanes) end
if lanes.is_waiting then announce(lanes) end
return reply

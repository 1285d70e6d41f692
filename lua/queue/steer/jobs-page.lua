--[[
  jobs-page: finds jobs of a queue in one of BullMQ's lists or sorted sets, or in a lane. Changes nothing.

  KEYS  [1] ids of jobs: list or zset
  ARGV  [1] prefix: the prefix of the queue's keys
        [2] from: where the previous page ended: "" for the first page; else the id of its last job, after its score
            in a zset
        [3] looked_at: how many jobs to check  [4] most: how many to find
        [5] kind: "line" for a list from its right end, where jobs are taken; "list" for a short one; "zset", or
            "newest" for a zset from its end
        [6] parked: "lane" for jobs that are parked in lanes, "free" for others, "" for all; "below" for jobs that are
            parked in lanes below [7]
        [7] key: their key or a parent of it, "" for any  [8] name: their name, "" for any
  Reply where this page ends, "" for the last one; then the ids
]]
-- @include lib/lanes/line
-- @include lib/lanes/look/read-ids
local ids, prefix, from, most, wanted = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local kind, where, key, name = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local lanes = lane_names(prefix)
if where == 'below' and redis.call('HEXISTS', lanes.state, 'paths') == 0 then return { '' } end

local function named(opts)
  if not opts or not string.find(opts, '"name"', 1, true) then return false end
  local ours = cjson.decode(opts).sluice
  return type(ours) == 'table' and ours.name == name
end

local function is_below(its_key)
  return string.sub(its_key, 1, #key + 1) == key .. SEPARATOR
end

local function is_meant(id)
  local stored, opts = unpack(redis.call('HMGET', prefix .. id, 'name', name ~= '' and 'opts' or 'name'))
  local its_key = stored and key_of(stored)
  if not stored or name ~= '' and not named(opts) then return false end
  if key ~= '' and (where == 'below' or its_key ~= key) and not (its_key and is_below(its_key)) then return false end
  if where == '' then return true end
  return (where ~= 'free') == (its_key ~= nil and redis.call('ZSCORE', lanes.lane .. its_key, id) ~= false)
end

local read = ({ line = read_line, list = read_list })[kind] or read_zset
local step = read == read_zset and 2 or 1
local looked, found = read(ids, from, most, kind == 'newest'), {}
local last = math.min(#looked, most * step)
for at = 1, last, step do
  if is_meant(looked[at]) then found[#found + 1] = looked[at] end
  if #found == wanted then
    last = at + step - 1
    break
  end
end
local ended = #looked == last and last < most * step
local cursor = not ended and last > 0 and (step == 1 and looked[last] or looked[last] .. ' ' .. looked[last - 1]) or ''
return { cursor, unpack(found) }

--[[
  jobs-page: finds jobs of a queue in a list or sorted set of BullMQ's, or in a lane. Changes nothing.

  KEYS  [1] ids of jobs: list or zset
  ARGV  [1] the prefix of the queue's keys  [2] where the last page ended: "" for the first one; the id of the last job,
            and of a zset its score before it  [3] how many jobs to look at  [4] how many to find
        [5] "list", "zset", or "newest" for a zset from its end
        [6] "lane" for those alone that are parked in lanes, "free" for those that are not, "" for all; "below" for those
            that are parked in lanes below [7]  [7] their key or a head of it, "" for any  [8] their name, "" for any
  Reply where this page ends, "" for the last one; then the ids
]]
-- @include lib/lanes/line
local ids, prefix, from, most, wanted = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local kind, where, key, name = ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local lanes = lane_names(prefix)
if where == 'below' and redis.call('HEXISTS', lanes.state, 'paths') == 0 then return { '' } end

-- The ids of a list in an order of their own: those before the last one come and go.
local function in_order(one, other)
  if #one ~= #other then return #one < #other end
  return one < other
end

local function of_list()
  local found = {}
  for _, id in ipairs(redis.call('LRANGE', ids, 0, -1)) do
    if from == '' or in_order(from, id) then found[#found + 1] = id end
  end
  table.sort(found, in_order)
  return found
end

-- After a job that is gone, from its score on: jobs of the same score come again.
local function of_zset()
  local rev = kind == 'newest'
  local function range(first, last)
    return redis.call(rev and 'ZREVRANGE' or 'ZRANGE', ids, first, last, 'WITHSCORES')
  end
  if from == '' then return range(0, most - 1) end
  local score, id = string.match(from, '^(%S+) (.*)$')
  local rank = redis.call('ZSCORE', ids, id) == score and redis.call('ZRANK', ids, id)
  if rank and rev then rank = redis.call('ZCARD', ids) - 1 - rank end
  if rank then return range(rank + 1, rank + most) end
  if rev then return redis.call('ZREVRANGEBYSCORE', ids, score, '-inf', 'WITHSCORES', 'LIMIT', 0, most) end
  return redis.call('ZRANGEBYSCORE', ids, score, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
end

local function named(opts)
  if not opts or not string.find(opts, '"name"', 1, true) then return false end
  local ours = cjson.decode(opts).sluice
  return type(ours) == 'table' and ours.name == name
end

local function is_below(its_key)
  return string.sub(its_key, 1, #key + 1) == key .. BETWEEN
end

local function is_meant(id)
  local stored, opts = unpack(redis.call('HMGET', prefix .. id, 'name', name ~= '' and 'opts' or 'name'))
  local its_key = stored and key_of(stored)
  if not stored or name ~= '' and not named(opts) then return false end
  if key ~= '' and (where == 'below' or its_key ~= key) and not (its_key and is_below(its_key)) then return false end
  if where == '' then return true end
  return (where ~= 'free') == (its_key ~= nil and redis.call('ZSCORE', lanes.lane .. its_key, id) ~= false)
end

local step = kind == 'list' and 1 or 2
local looked, found = kind == 'list' and of_list() or of_zset(), {}
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

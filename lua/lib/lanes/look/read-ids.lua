-- Reads one page of job ids from one of BullMQ's lists or sorted sets, after the last job of the previous page.

-- Reads a list from its right end, where workers fetch jobs. If the last job of the previous page is no longer in the
-- list, the page starts at that end again.
local function read_line(ids, from, most)
  local at = from ~= '' and redis.call('LPOS', ids, from, 'RANK', -1)
  if at == 0 then return {} end
  local some = redis.call('LRANGE', ids, at and math.max(0, at - most) or -most, at and at - 1 or -1)
  local found = {}
  for place = #some, 1, -1 do found[#found + 1] = some[place] end
  return found
end

-- Compares two ids. This order stays the same although jobs join and leave the list.
local function in_order(one, other)
  if #one ~= #other then return #one < #other end
  return one < other
end

-- Returns all ids of a short list that come after `from`.
local function read_list(ids, from)
  local found = {}
  for _, id in ipairs(redis.call('LRANGE', ids, 0, -1)) do
    if from == '' or in_order(from, id) then found[#found + 1] = id end
  end
  table.sort(found, in_order)
  return found
end

-- Reads ids and scores. If the last job of the previous page no longer exists, the page starts at its score, so jobs
-- with the same score are repeated.
local function read_zset(ids, from, most, is_newest)
  local function range(first, last)
    return redis.call(is_newest and 'ZREVRANGE' or 'ZRANGE', ids, first, last, 'WITHSCORES')
  end
  if from == '' then return range(0, most - 1) end
  local score, id = string.match(from, '^(%S+) (.*)$')
  local rank = redis.call('ZSCORE', ids, id) == score and redis.call('ZRANK', ids, id)
  if rank and is_newest then rank = redis.call('ZCARD', ids) - 1 - rank end
  if rank then return range(rank + 1, rank + most) end
  if is_newest then return redis.call('ZREVRANGEBYSCORE', ids, score, '-inf', 'WITHSCORES', 'LIMIT', 0, most) end
  return redis.call('ZRANGEBYSCORE', ids, score, '+inf', 'WITHSCORES', 'LIMIT', 0, most)
end

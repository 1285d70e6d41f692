-- Sums the cost of pending jobs in plain calls: sums[n] is the cost of the first n jobs. Only `most` jobs are read,
-- because Redis is blocked during the read. The jobs behind them are assumed to cost the same on average.

local function share_in(opts)
  local ours = opts and string.find(opts, '"share"', 1, true) and cjson.decode(opts).sluice
  return type(ours) == 'table' and tonumber(ours.share) or 1
end

-- Sums the jobs of a lane, whose shares are all in one hash.
local function sums_of_lane(lanes, key, most)
  local sums, total = {}, 0
  for from = 0, most - 1, 1000 do
    local ids = redis.call('ZRANGE', lanes.lane .. key, from, math.min(from + 1000, most) - 1)
    if #ids == 0 then break end
    for _, share in ipairs(redis.call('HMGET', lanes.shares, unpack(ids))) do
      total = total + (share and tonumber(share) or 1)
      sums[#sums + 1] = total
    end
  end
  return sums
end

-- Sums the jobs that wait to be fetched. Those in the list go before those with a priority. A job for which `joins`
-- returns true counts among the held jobs instead.
local function sums_of_waiting(prefix, wait, prioritized, most, joins)
  local sums, total = {}, 0
  local function add(id)
    local name, opts = unpack(redis.call('HMGET', prefix .. id, 'name', 'opts'))
    local share = share_in(opts)
    if not joins(id, name and key_of(name), share) then total = total + share end
    sums[#sums + 1] = total
  end
  if most < 1 then return sums end
  local listed = redis.call('LRANGE', wait, -most, -1)
  for at = #listed, 1, -1 do add(listed[at]) end
  if #sums < most then
    for _, id in ipairs(redis.call('ZRANGE', prioritized, 0, most - #sums - 1)) do add(id) end
  end
  return sums
end

local function calls_of(sums, jobs)
  if jobs == 0 or not sums or #sums == 0 then return jobs end
  return sums[jobs] or sums[#sums] * jobs / #sums
end

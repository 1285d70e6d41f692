--[[
  ratios-learn: adds samples of actual ÷ estimated cost for a bucket, and returns the mean ratio for each name.

  KEYS  [1] ratios: hash, name -> "<samples> <mean, in millionths> <order>"; expires 30 days after the last sample
  ARGV  [1] most_names  [2] most_samples  [3] least: the lowest valid ratio, in millionths  [4] most: the highest one
        [5…] name, ratio: two values per sample; the ratio is in millionths
  Reply { name, mean in millionths, ... }
]]
local key = KEYS[1]
local most_names, most_samples = tonumber(ARGV[1]), tonumber(ARGV[2])
local least, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local KEEP_MS = 2592000000

local seen = {}
for index = 5, #ARGV, 2 do
  local ratio = tonumber(ARGV[index + 1])
  if not ratio or ratio < least or ratio > most or ratio % 1 ~= 0 then
    return redis.error_reply('SLUICE_BAD_ARGUMENT a ratio is out of its bounds')
  end
  seen[#seen + 1] = { name = ARGV[index], ratio = ratio }
end

local known, count, order = {}, 0, 0
local stored = redis.call('HGETALL', key)
for index = 1, #stored, 2 do
  local samples, mean, at = string.match(stored[index + 1], '^(%d+) (%d+) (%d+)$')
  known[stored[index]] = { samples = tonumber(samples), mean = tonumber(mean), order = tonumber(at) }
  count = count + 1
  order = math.max(order, tonumber(at))
end

local function forget_longest_ago()
  local name, at = nil, math.huge
  for each, learned in pairs(known) do
    if learned.order < at then name, at = each, learned.order end
  end
  known[name] = nil
  count = count - 1
  redis.call('HDEL', key, name)
end

for _, sample in ipairs(seen) do
  local before = known[sample.name]
  if not before then
    if count >= most_names then forget_longest_ago() end
    before = { samples = 0, mean = 0 }
    count = count + 1
  end
  order = order + 1
  local samples = math.min(before.samples + 1, most_samples)
  local mean = before.mean + math.floor((sample.ratio - before.mean) / samples)
  known[sample.name] = { samples = samples, mean = mean, order = order }
  redis.call('HSET', key, sample.name, string.format('%.0f %.0f %.0f', samples, mean, order))
end
if #seen > 0 then redis.call('PEXPIRE', key, KEEP_MS) end

local reply = {}
for name, learned in pairs(known) do
  reply[#reply + 1] = name
  reply[#reply + 1] = learned.mean
end
return reply

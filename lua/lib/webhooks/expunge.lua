-- Removes one message with its attempts, and its entries in the logs, lines and failed messages of its endpoints.

-- Replaces the id of an expunged message. No message id has a dot.
local NO_MESSAGE = '.'
local LOOKED_AT_ONCE = 1000

-- Encodes a name in the same way as `encoded` in src/stores/redis/scripts/keys.ts.
local function encode(name)
  return (string.gsub(string.gsub(name, '%%', '%%25'), ':', '%%3A'))
end

local function blank_in_line(line, id)
  for from = 0, redis.call('LLEN', line) - 1, LOOKED_AT_ONCE do
    for at, entry in ipairs(redis.call('LRANGE', line, from, from + LOOKED_AT_ONCE - 1)) do
      local purpose, message, rest = string.match(entry, '^(%S+) (%S+)(.*)$')
      if message == id then redis.call('LSET', line, from + at - 1, purpose .. ' ' .. NO_MESSAGE .. rest) end
    end
  end
end

-- `base` is the beginning of the sender's keys, and `tenant` is encoded. Returns true if the message existed.
local function expunge_message(base, tenant, messages, ends, id)
  local own = tenant .. ':' .. encode(id)
  local message, attempts = base .. 'message:' .. own, base .. 'attempts:' .. own
  redis.call('ZREM', messages, id)
  redis.call('ZREM', ends, id)
  local logged = redis.call('HGETALL', attempts)
  for at = 1, #logged, 2 do
    local endpoint = string.match(logged[at + 1], '^{"endpoint":"([^"]+)"')
    if endpoint then redis.call('ZREM', base .. 'log:' .. tenant .. ':' .. encode(endpoint), id .. ' ' .. logged[at]) end
  end
  local fields, endpoints = redis.call('HGETALL', message), {}
  for at = 1, #fields, 2 do
    local tried = string.match(fields[at], '^to:(.*)$')
    if tried then endpoints[tried] = true end
    if fields[at] == 'endpoints' then for each in string.gmatch(fields[at + 1], '%S+') do endpoints[each] = true end end
  end
  for endpoint in pairs(endpoints) do
    local its = tenant .. ':' .. encode(endpoint)
    redis.call('ZREM', base .. 'failed:' .. its, id)
    blank_in_line(base .. 'line:' .. its, id)
  end
  redis.call('UNLINK', message, attempts)
  return #fields > 0
end

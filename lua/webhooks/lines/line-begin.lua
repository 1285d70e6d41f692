--[[
  line-begin: returns the data for one attempt at an ordered endpoint, and whether the attempt may begin. The first
  attempt decides how many messages are sent together. Later attempts send the same messages.

  KEYS  [1] endpoints: hash of the tenant's records  [2] disabled: hash  [3] health: hash of the endpoint
        [4] line: list  [5] state: hash, both as in lib/webhooks/line
  ARGV  [1] endpoint  [2] step: the step of the attempt  [3] most: the most messages that are sent together
        [4] most_bytes: the most bytes in those messages
        [5] timeout_ms: the time limit of an attempt, unless the endpoint has its own
        [6] messages: the beginning of the keys of the tenant's messages
  Reply empty if another step is next. Otherwise: the record. The reason if it is disabled. Ms until the circuit breaker
        allows an attempt, or 0. Ms since 1970 now. The number of the attempt. The purpose. The user who requested it.
        Then for each message its id, the ms since 1970 of its arrival, type, body, state at the endpoint, and copy.
        Missing values are ''.
]]
-- @include lib/time/now-ms
-- @include lib/webhooks/breaker
local endpoints, disabled, health, line, state = unpack(KEYS)
local id, step, most, most_bytes, timeout_ms = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local current, attempt, taken = unpack(redis.call('HMGET', state, 'step', 'attempt', 'taken'))
local record = redis.call('HGET', endpoints, id)
if current ~= step or not record then return {} end

local why, now, wait_ms = redis.call('HGET', disabled, id), now_ms(), 0
local purpose, by, bytes, found = nil, '', 0, {}
local is_first = tonumber(taken) == 0
for _, entry in ipairs(redis.call('LRANGE', line, 0, (is_first and most or tonumber(taken)) - 1)) do
  local of, message, who = string.match(entry, '^(%S+) (%S+) ?(.*)$')
  local at, kind, body, became, copy = unpack(
    redis.call('HMGET', ARGV[6] .. message, 'at', 'type', 'body', 'to:' .. id, 'copy'))
  bytes = bytes + #(body or '')
  local goes_along = not purpose or (of == purpose and who == by and body and bytes <= most_bytes)
  if is_first and not goes_along then break end
  purpose, by = of, who
  for _, each in ipairs({ message, tonumber(at or 0), kind or '', body or '', became or '', copy or '' }) do
    found[#found + 1] = each
  end
  -- An expired message is handled alone.
  if is_first and not body then break end
end
if purpose == 'send' and not why then wait_ms = breaker_wait(health, record, now, timeout_ms) end
if is_first then redis.call('HSET', state, 'taken', #found / 6) end
return { record, why or '', wait_ms, now, tonumber(attempt), purpose or '', by, unpack(found) }

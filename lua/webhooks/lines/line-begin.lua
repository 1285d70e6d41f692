--[[
  line-begin: what one attempt at an ordered endpoint needs, and whether it may begin. On the first attempt, it decides how
  many messages go together; later ones send the same.

  KEYS  [1] endpoints: hash of the tenant's records  [2] disabled: hash  [3] health: hash of the endpoint
        [4] line: list  [5] state: hash, both as in lib/webhooks/line
  ARGV  [1] the endpoint  [2] the step of the attempt  [3] the most messages that go together  [4] and their most bytes
        [5] how many ms an attempt may take where the endpoint says nothing else  [6] the keys of the tenant's messages, up to their ids
  Reply record; why it is disabled; ms to wait for the breaker, or 0; now; the number of the attempt; purpose; who asked; then
        of each message its id, ms since 1970 at which it came, type, body, what became of it there, its copy. What is not there is
        empty; all is, if another step is next.
]]
-- @include lib/now-ms
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
  -- What is no longer kept goes by itself.
  if is_first and not body then break end
end
if purpose == 'send' and not why then wait_ms = breaker_wait(health, record, now, timeout_ms) end
if is_first then redis.call('HSET', state, 'taken', #found / 6) end
return { record, why or '', wait_ms, now, tonumber(attempt), purpose or '', by, unpack(found) }

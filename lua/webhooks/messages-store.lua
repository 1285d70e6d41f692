--[[
  messages-store: stores a message, unless its tenant already has a message with this id. It also stores nothing if
  all endpoints of the tenant were removed after the caller read them.

  KEYS  [1] message: hash, expires  [2] messages: zset of the tenant's ids, by the ms since 1970 of their arrival
        [3] ends: zset of the same ids, by the ms since 1970 at which they expire
        [4] endpoints: hash of the tenant's records
        [5…] line and state of each ordered endpoint, as in lib/webhooks/line
  ARGV  [1] message: the id  [2] type  [3] body  [4] endpoints: the ids of its endpoints, separated by spaces
        [5] keep_ms: ms for which it is kept  [6] ordered: the ids of the ordered endpoints among them
        [7] copy: a name that no other message has
  Reply the ms since 1970 of its arrival; 1 if it is new; its endpoints; 1 if its jobs were already stored; the ordered
        endpoints; the stored copy
]]
-- @include lib/time/now-ms
-- @include lib/webhooks/line
local message, messages, ends, id, keep_ms = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[5])
local records, ordered, copy = KEYS[4], ARGV[6], ARGV[7]
local at, endpoints, is_sent, lines, stored = unpack(
  redis.call('HMGET', message, 'at', 'endpoints', 'sent', 'ordered', 'copy'))
if at then return { tonumber(at), 0, endpoints, is_sent and 1 or 0, lines or '', stored or '' } end

local now = now_ms()
if ARGV[4] ~= '' and redis.call('EXISTS', records) == 0 then return { now, 1, '', 1, '', copy } end
if ordered ~= '' then
  -- Sets a time later than that of all earlier messages, because the time defines the message's position among them.
  now = math.max(now, (tonumber(redis.call('ZREVRANGE', messages, 0, 0, 'WITHSCORES')[2]) or 0) + 1)
  redis.call('HSET', message, 'ordered', ordered)
  local key = 5
  for endpoint in string.gmatch(ordered, '%S+') do
    -- Skips removed endpoints, because their lines would never expire.
    if redis.call('HEXISTS', records, endpoint) == 1 then join_line(KEYS[key], KEYS[key + 1], { 'send ' .. id }) end
    key = key + 2
  end
end
redis.call('HSET', message, 'at', now, 'type', ARGV[2], 'body', ARGV[3], 'endpoints', ARGV[4], 'copy', copy)
redis.call('PEXPIRE', message, keep_ms)
redis.call('ZADD', messages, now, id)
redis.call('ZADD', ends, now + keep_ms, id)
-- Removes expired messages from the lists.
local gone = redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 100)
if #gone > 0 then
  redis.call('ZREM', messages, unpack(gone))
  redis.call('ZREM', ends, unpack(gone))
end
if redis.call('PTTL', messages) < keep_ms then
  redis.call('PEXPIRE', messages, keep_ms)
  redis.call('PEXPIRE', ends, keep_ms)
end
return { now, 1, ARGV[4], 0, ordered, copy }

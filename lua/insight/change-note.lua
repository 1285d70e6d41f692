--[[
  change-note: records a change in one of the change logs. For a bucket, it also records the override that the change
  begins. There are separate logs for buckets by hand, buckets by rules, queues, endpoints, settings by rules, and
  endpoints without a named author. Rules can change thousands of buckets at once, and tenants can change thousands of
  endpoints. With separate logs, such changes do not displace the others.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] of: the bucket or the queue  [2] change: the change, as JSON  [3] most: how many changes are kept
        [4] begun: the override that it begins, as JSON, or ''  [5] for_ms: ms until the override ends; '' for no end
        [6] kept_ms: ms for which the logs and overrides are kept after the last change  [7] log: the suffix of the
            log, such as ":rules"
        [8] first_number: the second number of the first id of a ms in this log; '' for the ids of Redis
        [9…] author: for an endpoint, a digest of author and tenant, and how many of their changes are kept
  Reply the id of the change
]]
-- @include lib/time/now-ms

local base, bucket, most, begun, for_ms, kept_ms = KEYS[1], ARGV[1], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local log, first_number = base .. ':changes' .. ARGV[7], ARGV[8]

-- Returns an id that differs from all ids in the other logs, even at the same time. It is later than the last id in
-- this log, and than the last one in any log with such ids, so that changes of one ms keep their order.
local function own_id()
  local in_log, in_any = redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1], redis.call('GET', base .. ':changes:last')
  local last_ms, last_number = 0, 0
  for _, known in ipairs({ in_log and in_log[1] or '0-0', in_any or '0-0' }) do
    local ms, number = string.match(known, '^(%d+)-(%d+)$')
    ms, number = tonumber(ms), tonumber(number)
    if ms > last_ms or (ms == last_ms and number > last_number) then last_ms, last_number = ms, number end
  end
  local at_ms, own = now_ms(), nil
  if last_ms < at_ms then own = string.format('%.0f-%s', at_ms, first_number)
  else own = string.format('%.0f-%.0f', last_ms, last_number + 1) end
  redis.call('SET', base .. ':changes:last', own, 'PX', kept_ms)
  return own
end

local id = first_number == '' and '*' or own_id()
id = redis.call('XADD', log, 'MAXLEN', '~', most, id, 'bucket', bucket, 'change', ARGV[2])
redis.call('PEXPIRE', log, kept_ms)
if ARGV[9] then
  -- Removes an author's oldest changes, so that a single author cannot fill the log.
  local own = base .. ':changes:of:' .. ARGV[9]
  redis.call('RPUSH', own, id)
  redis.call('PEXPIRE', own, kept_ms)
  if redis.call('LLEN', own) > tonumber(ARGV[10]) then redis.call('XDEL', log, redis.call('LPOP', own)) end
end
if begun == '' then return id end
local until_ms = ''
if for_ms ~= '' then
  until_ms = string.format('%.0f', now_ms() + tonumber(for_ms))
  redis.call('ZADD', base .. ':due', until_ms, id .. '|' .. bucket)
  redis.call('PEXPIRE', base .. ':due', kept_ms)
end
-- Earlier overrides stay stored for now, because this change may still be rejected.
redis.call('HSET', base .. ':overrides:' .. bucket, id, '|' .. until_ms .. '|' .. begun)
redis.call('PEXPIRE', base .. ':overrides:' .. bucket, kept_ms)
return id

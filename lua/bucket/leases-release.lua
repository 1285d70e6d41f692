--[[
  leases-release: gives leases back, and wakes the askers that have waited longest for what is free now.
  Twin of releaseLeases in src/core/draw/leases.ts.

  KEYS  as in slots-draw, with the keys of the calls
  ARGV  [1] asker  [2] start of the channels' names; the name of an asker follows
        [3] numbers: pinned_us, terms, keys, leases {number}
        [4] message about a lease of the bucket  [5..] per key: message about a lease of the key
  Reply { name of each asker that was woken... }
]]
-- @include lib/now
-- @include lib/request/numbers
-- @include lib/limits/registry
-- @include lib/limits/read-limits
-- @include lib/state/scope
-- @include lib/state/pack
-- @include lib/state/load-and-save
-- @include lib/state/bucket
-- @include lib/request/request
-- @include lib/draw/leases

local asker, channel, next_number = ARGV[1], ARGV[2], numbers_of(ARGV[3])
if not next_number then return redis.error_reply('SLUICE_BAD_ARGUMENT every number has to be whole') end
local leased, leases, now = read_leases(next_number)
if not leased then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local woken, is_woken, names = {}, {}, {}
for index, lease in ipairs(leases) do names[index] = lease_name(asker, lease) end
for _, limit in ipairs(leased) do
  if #names > 0 then redis.call('ZREM', limit.keys[1], unpack(names)) end
  local message = ARGV[4 + limit.key_index]
  local free = limit.count - count_leases(limit, now)
  for _, waiter in ipairs(waiters_of(limit, now)) do
    local waiting = string.sub(waiter, 18)
    -- One that passes an offer on does not get it back, though it may wait.
    if free > 0 and not (#leases == 0 and waiting == asker) then
      free = free - 1
      if not is_woken[message .. waiting] then
        is_woken[message .. waiting] = true
        woken[#woken + 1] = waiting
        redis.call('PUBLISH', channel .. waiting, message)
      end
    end
  end
end
return woken

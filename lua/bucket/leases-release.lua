--[[
  leases-release: returns leases, and notifies the replicas that have waited longest for a free lease.

  KEYS  [1] the bucket's state  string: see lib/state/pack; then per limit: its leases and its waiters, see lib/limits/leases
  ARGV  [1] replica  [2] the beginning of the channels' names; the name of a replica follows
        [3] numbers: pinned_us, limits {count period_us}, leases {number}
        [4..] per limit: the message that says that the limit has a free lease
  Reply { name of each replica that was woken... }
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/leases
-- @include lib/request/leases

local replica, channel = ARGV[1], ARGV[2]
local limits, leases, now = read_leases(ARGV[3])
if not limits then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local woken, is_woken, names = {}, {}, {}
for index, lease in ipairs(leases) do names[index] = lease_name(replica, lease) end
for index, limit in ipairs(limits) do
  if #names > 0 then redis.call('ZREM', limit.keys[1], unpack(names)) end
  local waiters = waiters_of(limit, now)
  if #waiters > 0 then
    local message, free = ARGV[3 + index], limit.count - count_leases(limit, now)
    for _, waiter in ipairs(waiters) do
      local waiting = string.sub(waiter, 18)
      -- A replica without leases to release passes an offer on. It does not get the offer back, even if it still
      -- waits.
      if free > 0 and not (#leases == 0 and waiting == replica) then
        free = free - 1
        if not is_woken[message .. waiting] then
          is_woken[message .. waiting] = true
          woken[#woken + 1] = waiting
          redis.call('PUBLISH', channel .. waiting, message)
        end
      end
    end
  end
end
return woken

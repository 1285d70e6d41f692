--[[
  leases-release: returns leases, and notifies the replicas that have waited longest for a free lease. Limits that adapt
  to latency learn from the calls that held the leases.

  KEYS  [1] the bucket's state  string: see lib/state/pack; then per limit: its leases and its waiters, see
        lib/limits/leases, and the state of a limit that adapts, see lib/limits/adaptive/window
  ARGV  [1] replica  [2] the beginning of the channels' names; the name of a replica follows
        [3] numbers: pinned_us, limits {count period_us keys}, leases {number}. If limits adapt, then {latency_us} per
            lease (below 0: the downstream dropped the call; 0: unknown), and per limit that adapts:
            {min initial tolerance_thousandths is_shadow}
        [4..] per limit: the message that says that the limit has a free lease
  Reply { name of each replica that was woken... }. If limits adapt: { { name... }, for each limit whose window was
        closed: { number of the limit, the fields of ADAPTIVE... }... }
]]
-- @include lib/time/now
-- @include lib/request/numbers
-- @include lib/limits/leases
-- @include lib/request/leases

local replica, channel = ARGV[1], ARGV[2]
local limits, leases, now, next_number = read_leases(ARGV[3])
if not limits then return redis.error_reply('SLUICE_BAD_ARGUMENT a number is out of its bounds') end

local woken, is_woken, names, latencies, closed = {}, {}, {}, {}, nil
for index, lease in ipairs(leases) do names[index] = lease_name(replica, lease) end

-- Releases the leases of a limit that adapts. Only a call that held a lease of the limit counts.
local function release_and_adapt(limit, number)
-- @include lib/limits/adaptive/window
  limit.terms = {
    min = next_number(), initial = next_number(), tolerance = (next_number() or 0) / 1000, is_shadow = next_number() == 1,
  }
  local in_flight, ended = count_leases(limit, now), {}
  for index, name in ipairs(names) do
    if redis.call('ZREM', limit.keys[1], name) > 0 then ended[#ended + 1] = latencies[index] end
  end
  if #ended == 0 then return bound_in(limit, load_adaptive(limit, now)) end
  local state, is_closed = add_latencies(limit, ended, in_flight, now)
  if is_closed then closed[#closed + 1] = report_adaptive(number, state) end
  return bound_in(limit, state)
end

for index, limit in ipairs(limits) do
  local most = limit.count
  if limit.keys[3] then
    if not closed then
      closed = {}
      for each = 1, #leases do latencies[each] = next_number() end
    end
    most = release_and_adapt(limit, index)
  elseif #names > 0 then
    redis.call('ZREM', limit.keys[1], unpack(names))
  end
  local waiters = waiters_of(limit, now)
  if #waiters > 0 then
    local message, free = ARGV[3 + index], most - count_leases(limit, now)
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
return closed and { woken, unpack(closed) } or woken

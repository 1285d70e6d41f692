--[[
  flows-release: records how parents of jobs of this queue ended, and releases jobs that wait for no other parent. A job
  that must not run is removed, or becomes due so that a worker fails it.

  KEYS  as in lanes-join, then [6] prioritized  [7] failed, both BullMQ's
  ARGV  [1] prefix: the prefix of the queue's keys  [2] count: the number of parents
        [3…] values: for each parent its name, its state and a text, as in release() of lib/flows/release. Then for each
            child its id, and the number of the parent, from 1 on
  Reply for each child: 0 there is no such job, a worker is about to fail it, or its open group does not have the
        parent. 1 the outcome is recorded. 2 the child was removed. 3 it was a dead letter and waits again.
]]
-- @include lib/time/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/weights
-- @include lib/lanes/states/unbegun
-- @include lib/flows/hold
-- @include lib/flows/release

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.prioritized, lanes.failed, lanes.flows = KEYS[6], KEYS[7], flow_names(ARGV[1])

local reply = {}
for at = 3 + 3 * tonumber(ARGV[2]), #ARGV, 2 do
  local parent = 3 * tonumber(ARGV[at + 1])
  reply[#reply + 1] = release(lanes, ARGV[at], ARGV[parent], ARGV[parent + 1], ARGV[parent + 2])
end
if lanes.is_changed then close_lanes(lanes) end
if lanes.is_waiting then announce(lanes) end
return reply

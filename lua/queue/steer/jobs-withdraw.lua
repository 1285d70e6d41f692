--[[
  jobs-withdraw: takes jobs out of where they wait or are delayed, so that no worker gets them; they are removed next. Those
  that run or have ended, and the next runs of recurring jobs, stay as they are.

  KEYS  as in jobs-move
  ARGV  [1] the prefix of the queue's keys  [2] on: the ids
  Reply the ids of those that were taken out
]]
-- @include lib/now-ms
-- @include lib/lanes/lanes
-- @include lib/lanes/unbegun

local lanes = open_lanes(KEYS, ARGV[1], now_ms())
lanes.prioritized = KEYS[6]
local schedules, taken = KEYS[7], {}
for at = 2, #ARGV do
  local id = ARGV[at]
  local name, schedule = unpack(redis.call('HMGET', lanes.jobs .. id, 'name', 'rjk'))
  local key = name and key_of(name)
  local place = name and place_of(lanes, id, key)
  if place and not is_planned_run(schedules, id, schedule) then
    leave_place(lanes, id, key, place)
    taken[#taken + 1] = id
  end
end
if lanes.is_changed then close_lanes(lanes) end
return taken

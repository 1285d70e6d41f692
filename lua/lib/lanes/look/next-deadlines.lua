-- Reads the jobs in lanes with the earliest deadlines: [id, key, jobs before it, ms until then, calls].
local function next_deadlines(lanes, most, now, location_of)
  local deadlines = {}
  local ids = redis.call('ZRANGE', lanes.deadlines, 0, most - 1, 'WITHSCORES')
  for at = 1, #ids, 2 do
    local place = location_of(ids[at])
    if place and place[2] >= 0 then
      deadlines[#deadlines + 1] = { ids[at], place[1], place[2], tonumber(ids[at + 1]) - now, place[3] }
    end
  end
  return deadlines
end

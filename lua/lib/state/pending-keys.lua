-- The most keys with pending calls in a reply, and how late a replica may be for its next draw before its turns expire.
local MOST_KEYS, LATE_DRAW_US = 32, 50000

-- Returns the keys with pending calls in the order of their turns, as the latest draw has stored it.
local function pending_keys(scope, now_us)
  local needs, since_us, found, seen = {}, {}, {}, {}
  for _, turn in ipairs(read_turns(scope, now_us - LATE_DRAW_US)) do
    for _, need in ipairs(needs_of(turn, turn.width - TURN_AMOUNTS)) do
      for each in string.gmatch(need.names and need.names .. NAMES_JOINED or '', '([^' .. NAMES_JOINED .. ']*)' .. NAMES_JOINED) do
        local names, weights, later_us = string.match(each, '^([^\4\7]*)\4?([^\7]*)\7?(.*)$')
        needs[#needs + 1] = { names = names, weights = weights, order = math.max(0, need.order), index = #needs }
        since_us[names] = math.min(since_us[names] or now_us, need.call_since_us + (tonumber(later_us) or 0))
      end
    end
  end
  table.sort(needs, function(a, b)
    if a.order ~= b.order then return a.order < b.order end
    return a.index < b.index
  end)
  for _, need in ipairs(needs) do
    if #found == MOST_KEYS * 4 then break end
    if not seen[need.names] then
      seen[need.names] = true
      local at = #found
      found[at + 1], found[at + 2], found[at + 3] = need.names, need.weights, since_us[need.names]
      found[at + 4] = math.min(2, math.floor(need.order / RANK_STEP))
    end
  end
  return found
end

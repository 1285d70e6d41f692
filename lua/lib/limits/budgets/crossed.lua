-- Adds the thresholds that the limits of a scope have reached: scope_number (0: the bucket), number of the limit, part
-- in millionths, spent, total, end_us.
local function add_crossed(into, scope_number, limits)
  for index, limit in ipairs(limits) do
    for _, each in ipairs(limit.crossed or {}) do
      for _, number in ipairs({ scope_number, index, each.part, each.spent, each.total, each.end_us }) do into[#into + 1] = number end
    end
  end
end

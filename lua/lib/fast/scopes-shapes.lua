-- A macro over the locals of scopes-try: reads the shapes. A shape has the costs of one kind of call.
-- Reads: now, lists, and numbers from next_at on.
-- Declares: shapes. Each shape has, for each of its keys, the limits and the cost under each limit. next_at then
-- points to the slot requests.
local shapes = {}
next_at = next_at + 1
for index = 1, numbers[next_at] do
  local shape = {}
  next_at = next_at + 1
  for each = 1, numbers[next_at] do
    local list = lists[numbers[next_at + 1]]
    local part = { base = list.base, n_limits = #list }
    next_at = next_at + 1
    for limit = 1, #list do
      local code, count, period_us, capacity = unpack(list[limit], 1, 4)
      local cost = numbers[next_at + limit]
      if not (are_whole(cost, 1) and cost <= capacity) then return '' end
      part[limit] = { code, count, period_us, capacity, cost, now - now % period_us }
    end
    next_at, shape[each] = next_at + #list, part
  end
  shapes[index] = shape
end
next_at = next_at + 1

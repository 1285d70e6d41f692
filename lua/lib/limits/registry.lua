-- Maps each kind of limit, by its number in Redis, to a rule. `a`, `b` and `c` of a limit are its state. A rule is a
-- table:
--   earliest(limit, at_us, cost, drawer)  The earliest time at which the cost fits; math.huge if that is unknown.
--   commit(limit, at_us, cost, drawer)    Books the cost. A negative cost takes back a booking of that time.
--   adapt(from, to, now_us)               Converts the state when the numbers of a limit change. Optional.
--   excess(limit, at_us, cost)            The level that must drain before at_us, in cost x period. Optional;
--                                         needed to book many calls as one run.
--   keep_position, leave_position         Store and remove the position of a replica that waits for an unknown time.
--                                         Optional.
--   read(limit, next_number)              Reads further numbers of the limit from a request. Optional.
--   add_state(limit, status)              Adds numbers to what lib/state/status returns. Optional.
-- A rule with is_budget has no pace. Separate Redis keys store its state. It has further functions:
--   save(limit, now_us)                   Writes the state if it has changed. Saving the scope calls it.
--   status(limit, now_us, cost)           Returns what lib/state/status adds.
--   settle, balance, grant, restore       See lib/limits/budget.
-- Rules are created on first use, because creating functions is slow in Lua, and most buckets have one or two kinds
-- of limits.
local MAKERS = {}
local RULES = setmetatable({}, {
  __index = function(rules, code)
    local make = MAKERS[code]
    if make then rules[code] = make() end
    return rawget(rules, code)
  end,
})
-- @include lib/limits/leaky-bucket
-- @include lib/limits/token-bucket
-- @include lib/limits/sliding-log
-- @include lib/limits/sliding-window
-- @include lib/limits/fixed-window
-- @include lib/limits/concurrency
-- @include lib/limits/adaptive/limit
-- @include lib/limits/budget

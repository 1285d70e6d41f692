-- The kinds of limits, by their numbers in Redis. A rule is a table:
--   earliest(limit, at_us, cost, drawer)  the earliest time at which the cost may pass; math.huge if that is unknown
--   commit(limit, at_us, cost, drawer)    books it; a negative cost takes back a booking of that time
--   src/core/limits/rule.ts explains the rest. `a`, `b` and `c` of a limit are its state.
-- A rule is made when it is first used: Lua takes long to make functions, and most buckets have one or two kinds of limits.
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

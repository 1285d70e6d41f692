-- Creates the functions that few draws need on first use. Each run of a script creates its functions again, and
-- creating a function takes as long as running it.

local shadow_functions = nil
local function for_shadows()
  if shadow_functions then return shadow_functions end
-- @include lib/draw/shadows
  shadow_functions = { read_shadows = read_shadows, count_calls = count_calls, save_shadows = save_shadows }
  return shadow_functions
end

local gate_functions = nil
local function for_gates()
  if gate_functions then return gate_functions end
-- @include lib/draw/gates
  gate_functions = { start_through = start_through, put_behind = put_behind }
  return gate_functions
end

local fair_functions = nil
local function for_fair()
  if fair_functions then return fair_functions end
-- @include lib/turns/fair
  fair_functions = {
    take_turns = take_turns, count_turns = count_turns, save_fair = save_fair,
    packed_tags = packed_tags, order_waiters = order_waiters, skip_turns = skip_turns,
    pass_turns = pass_turns, most_in_turn = most_in_turn, use_slack = use_slack,
    begin_turns = begin_turns, start_in_turn = start_in_turn, add_fair_need = add_fair_need, wait_in_turn = wait_in_turn,
  }
  return fair_functions
end

local try_functions = nil
local function for_tries()
  if try_functions then return try_functions end
-- @include lib/draw/tries
  try_functions = {
    book_at_once = book_at_once, later_of_main = later_of_main, until_open = until_open, add_statuses_for = add_statuses_for,
    add_statuses = add_statuses,
  }
  return try_functions
end

local function for_losses()
-- @include lib/state/lost-state
  return { use_up = use_up }
end

local function for_changes()
-- @include lib/state/changes
  return { new_bucket = new_bucket, settle_terms = settle_terms }
end

local function for_holes()
-- @include lib/state/holes
  return take_holes
end

local budget_functions = nil
local function for_budgets()
  if budget_functions then return budget_functions end
-- @include lib/limits/budgets/spent
  budget_functions = { spent_by = spent_by, notes_of = notes_of }
  return budget_functions
end

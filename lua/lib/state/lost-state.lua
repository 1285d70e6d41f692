-- What happens when Redis has lost what a bucket let pass. Twin of isStateLost and useUp in
-- src/core/draw/bucket-state.ts.
-- Redis keeps a bucket for at least KEPT_US after a draw. A lost window up to SHORT_US counts as used up; a longer one does
-- not, since it could block a whole day.
local KEPT_US, SHORT_US = 3600000000, 60000000

-- Whether the asker knows of a draw, or of a policy, that the bucket has lost.
local function is_state_lost(bucket, terms, server_us, drew)
  if drew.at_us == 0 or drew.starts_full then return false end
  -- After this long without a draw the bucket has expired, and had drained long before.
  if not bucket then return server_us < drew.at_us + KEPT_US end
  return drew.at_us > bucket.clock_us or terms.version > bucket.version
end

-- Books all that the limits would let pass at once, as if a burst had just left.
local function use_up(scope, now_us)
  local at_us = math.max(now_us, scope.last_us)
  local drawer = { asker = '', now_us = now_us, order = 0, lease = 0 }
  for _, limit in ipairs(scope.limits) do
    local rule = RULES[limit.code]
    if rule.is_rate and (rule.does_drain or limit.period_us <= SHORT_US) then
      local spare = remaining_of(limit, at_us, drawer)
      if spare > 0 then rule.commit(limit, at_us, spare, drawer) end
    end
  end
end

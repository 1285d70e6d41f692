-- A macro at the head of slots-draw: the plain draw, that nearly all draws are. One leaky bucket, calls of one cost and
-- priority, and nothing unusual. It does what the rest of slots-draw does in a third of the time, since Lua makes every
-- function anew for each run of a script. All else falls through to the rest; until then nothing has been written.
-- It repeats the arithmetic of lib/limits/leaky-bucket and of lib/draw: change them together.
if #ARGV[4] == 28 * 8 then
  local pinned_us, horizon_us, drew_us, how, _, own_turn_us, lease_order, version, s1, s2, s3, s4,
    n_limits, code, count, period_us, capacity, n_resets, n_keys, n_wishes, wanted, rank, _, since_us,
    next_since_us, last_since_us, n_own_keys, cost = struct.unpack('<dddddddddddddddddddddddddddd', ARGV[4])
  local packed = how % 2 == 0 and lease_order == 0 and n_limits == 1 and code == 1 and n_resets == 0 and n_keys == 0
    and n_own_keys == 0 and n_wishes == 1 and wanted >= 1 and wanted % 1 == 0 and cost >= 1 and cost <= capacity and cost % 1 == 0
    and horizon_us >= 0 and horizon_us % 1 == 0 and drew_us % 1 == 0 and own_turn_us % 1 == 0
    and since_us % 1 == 0 and next_since_us % 1 == 0 and last_since_us % 1 == 0 and redis.call('GET', KEYS[1])
  -- Ten numbers of the bucket, eleven of its scope, seven of its limit and one more: see lib/state/pack.
  if packed and struct.unpack('<d', packed) == 29 and string.sub(packed, 233) == ARGV[2] then
    local _, generation, own_version, source, clock_us, skew_us, window_us, alive, alive_before, holes,
      last_us, cool_us, paused_us, cut_us, factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us,
      _, own_code, own_count, own_period_us, own_capacity, a, b, c, tried_us =
      struct.unpack('<ddddddddddddddddddddddddddddd', packed)
    local server_us = pinned_us
    if pinned_us == 0 then
      local time = redis.call('TIME')
      server_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    local now = math.max(server_us + skew_us, clock_us)
    local missed_us = now - math.floor(horizon_us / 2)
    local share_of_rank = rank == 2 and s3 or rank == 0 and s1 or rank == 1 and s2 or rank == 3 and s4
    local is_plain = version <= own_version and drew_us <= clock_us and own_code == 1 and own_count == count
      and own_period_us == period_us and own_capacity == capacity and holes == 0 and cool_us <= now and paused_us <= now
      and gap_until_us <= now and (factor >= 1000 or now >= slow_us + recover_us) and share_of_rank
    -- The turns of others: for each its order, what it needs, and when it may start.
    local orders, sinces, needs, starts, missed = {}, {}, {}, {}, {}
    if is_plain and turns_until_us >= missed_us then
      local found = redis.call('ZRANGE', KEYS[2], 0, 63, 'WITHSCORES')
      for index = 1, #found, 2 do
        local since, due, start, need, asker = string.match(found[index], '^(%d+) (%d+) (%d+) 1 (%d+) (%S+)$')
        if not due then
          is_plain = false
        elseif tonumber(due) < missed_us then
          missed[#missed + 1] = found[index]
        elseif asker ~= ARGV[1] then
          local at = #orders + 1
          orders[at], sinces[at] = tonumber(found[index + 1]), tonumber(since)
          needs[at], starts[at] = tonumber(need), tonumber(start)
        end
      end
    end
    if is_plain then
      local age = now - window_us
      local is_new_window = age >= 1000000
      if is_new_window then
        alive_before = age < 2000000 and alive or 0
        alive, window_us = 0, now
      end
      if drew_us == 0 or drew_us < window_us then alive = alive + 1 end
      local most_alive = math.max(1, alive, alive_before)
      if #missed > 0 then redis.call('ZREM', KEYS[2], unpack(missed)) end

      local step = cost * period_us
      local slots = math.floor(math.min(1000000, capacity / cost + (horizon_us * count) / step))
      local share = math.max(1, math.floor(math.min(slots * 0.75, slots / most_alive)))
      slots = math.floor(math.min(1000000, 1 + (horizon_us * count) / step))
      local flow = math.min(share, math.max(1, math.floor(math.min(slots * 0.75, slots / most_alive))))
      local most = math.min(wanted, share)
      local horizon = math.floor((horizon_us * share_of_rank) / 1000)
      local first_us = since_us == 0 and now or math.min(since_us, now + 1000000)
      local order = rank * 2 ^ 51 + first_us - first_us % 1000
      local own_since_us = tonumber(string.match(ARGV[3], '^%d+')) or math.huge
      local at_us, until_us = math.max(now, last_us), now + horizon
      local level = a < at_us and 0 or (a - at_us) * count + b
      local excess = level + (cost - capacity) * period_us
      local room = (until_us - at_us) * count - excess
      local fit = (until_us < at_us or room < 0) and 0 or math.floor(room / step) + 1
      local sum, is_behind, before_us = 0, false, own_since_us
      for index = 1, #orders do
        if orders[index] > order or (orders[index] == order and sinces[index] >= before_us) then break end
        sum, is_behind = sum + needs[index], true
        local left = (math.max(until_us, starts[index]) - at_us) * count - level - (sum - capacity) * period_us
        fit = math.min(fit, math.max(0, math.floor(left / step)))
      end
      local granted = (is_behind and fit < math.min(most, flow)) and 0 or math.min(most, fit)
      if granted > 0 then
        local slot_us = at_us + math.ceil(math.max(0, excess) / count)
        if slot_us - a > (b > 0 and 1 or 0) then a, b, c = slot_us, 0, slot_us end
        local rest = b + granted * step
        local whole_us = math.floor(rest / count)
        a, b = a + whole_us, rest - whole_us * count
        last_us = math.max(last_us, at_us + math.ceil(math.max(0, excess + (granted - 1) * step) / count))
      end

      local left, turn_us, turn_name, binds_at, soonest_us = wanted - granted, 0, '', 0, 0
      if left > 0 then
        local opens_us = math.max(now, last_us)
        local next_level = a < opens_us and 0 or (a - opens_us) * count + b
        local next_us = opens_us + math.ceil(math.max(0, next_level + (cost - capacity) * period_us) / count)
        if granted > 0 then
          local next_call_us = math.max(first_us, next_since_us == 0 and now or math.min(next_since_us, now + 1000000))
          local last_call_us = math.max(next_call_us, last_since_us == 0 and now or math.min(last_since_us, now + 1000000))
          local rest_us = next_call_us + math.floor(((last_call_us - next_call_us) * (granted - 1)) / wanted)
          order, before_us = rank * 2 ^ 51 + rest_us - rest_us % 1000, math.huge
        end
        -- When there is room for an amount, as in room_at_us of lib/draw/turns.
        local function room_at(amount)
          local beyond = amount - capacity
          local room_us = opens_us + math.ceil(math.max(0, next_level + math.min(0, beyond) * period_us) / count)
          return beyond > 0 and room_us + math.ceil((beyond * period_us) / count) or room_us
        end
        local needed = math.min(wanted, flow) * cost
        local before, ahead_us, left_us = 0, horizon, math.floor(horizon / 8)
        sum = 0
        for index = 1, #orders do
          if orders[index] > order or (orders[index] == order and sinces[index] >= before_us) then break end
          sum = sum + needs[index]
          if room_at(sum + needed) > math.max(until_us, starts[index]) then before = sum end
        end
        if sum > 0 and step / count <= left_us / 8 then ahead_us = horizon - left_us end
        local start_us = room_at(before + needed)
        turn_us = math.max(granted == 0 and now + 1000 or now, start_us - ahead_us)
        local due_us = math.min(turn_us, now + 500000)
        local turn_since_us = granted > 0 and now + 1 or math.min(now, own_since_us)
        turn_name = string.format('%.0f %.0f %.0f 1 %.0f %s', turn_since_us, due_us, start_us, needed, ARGV[1])
        if ARGV[3] ~= turn_name and ARGV[3] ~= '' then redis.call('ZREM', KEYS[2], ARGV[3]) end
        redis.call('ZADD', KEYS[2], string.format('%.0f', order), turn_name)
        turns_until_us = math.max(turns_until_us, due_us)
        if is_new_window then
          for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
            if tonumber(string.match(name, '^%d+ (%d+)')) < missed_us then redis.call('ZREM', KEYS[2], name) end
          end
        end
        redis.call('PEXPIRE', KEYS[2], math.ceil((turns_until_us - now) / 1000) + 60000)
        if next_us > now + horizon and next_us > opens_us then binds_at = 1 end
        soonest_us = next_us
      elseif ARGV[3] ~= '' then
        redis.call('ZREM', KEYS[2], ARGV[3])
      end

      local drained_us = math.max(slow_us + recover_us, a < now and now or a + math.ceil(b / count)) - now
      redis.call('SET', KEYS[1], struct.pack('<ddddddddddddddddddddddddddddd', 29, generation, own_version,
        source, now, now - server_us, window_us, alive, alive_before, holes, last_us, cool_us, paused_us, cut_us,
        factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us, 1, 1, count, period_us,
        capacity, a, b, c, tried_us) .. ARGV[2], 'PX', math.ceil(math.max(0, drained_us) / 1000)
        + (source > 0 and 2592000000 or 3600000))
      local ran_at_us, ran_excess = granted > 0 and at_us or 0, granted > 0 and excess or 0
      return { now, generation, own_version, most_alive, '', turn_us, turn_name, 0, source,
        0, 0, { granted, ran_at_us, ran_excess, 0, binds_at, soonest_us } }
    end
  end
end

-- A macro at the beginning of slots-draw for the plain draw, the most frequent one: one leaky bucket, calls of one
-- cost and priority. Its reply is the same as that of the rest of slots-draw, in a third of the time, because it
-- creates no functions. If anything is unusual, it writes nothing and the rest of slots-draw runs.
-- It repeats the arithmetic of lib/limits/leaky-bucket and lib/draw. The histories of the conformance suite compare
-- both.
if #ARGV[3] == 168 and #ARGV[4] == 96 then
  local pinned_us, horizon_us, drew_us, how, _, _, own_since_us, lease_order, version, s1, s2, s3, s4, n_limits, code, count,
    period_us, capacity, n_resets, n_keys, has_shadows = struct.unpack('<ddddddddddddddddddddd', ARGV[3])
  local n_classes, n_costs, cost, n_slot_requests, class, wanted, rank, _, since_us, next_since_us, last_since_us, n_own_keys =
    struct.unpack('<dddddddddddd', ARGV[4])
  local packed = how % 2 == 0 and lease_order == 0 and n_limits == 1 and code == 1 and n_resets == 0 and n_keys == 0
    and has_shadows == 0 and n_classes == 1 and n_costs == 1 and n_slot_requests == 1 and class == 1 and n_own_keys == 0
    and wanted >= 1 and wanted % 1 == 0 and cost >= 1 and cost <= capacity and cost % 1 == 0 and horizon_us >= 0
    and horizon_us % 1 == 0 and drew_us % 1 == 0 and own_since_us % 1 == 0 and since_us % 1 == 0 and next_since_us % 1 == 0
    and last_since_us % 1 == 0 and redis.call('GET', KEYS[1])
  -- The stored bucket must have 29 doubles: ten of the bucket, eleven of its scope, seven of its limit, and one more.
  -- See lib/state/pack.
  if packed and struct.unpack('<d', packed) == 29 and string.sub(packed, 233) == ARGV[2] then
    local _, generation, own_version, source, clock_us, skew_us, window_us, alive, alive_before, holes,
      last_us, cool_us, paused_us, cut_us, factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us,
      _, own_code, own_count, own_period_us, own_capacity, a, b, c, tried_us =
      struct.unpack('<ddddddddddddddddddddddddddddd', packed)
    local server_us, floor, ceil, max, min = pinned_us, math.floor, math.ceil, math.max, math.min
    if pinned_us == 0 then
      local time = redis.call('TIME')
      server_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    local now = max(server_us + skew_us, clock_us)
    local missed_us = now - floor(horizon_us / 2)
    local share_of_rank = rank == 2 and s3 or rank == 0 and s1 or rank == 1 and s2 or rank == 3 and s4
    local is_plain = version <= own_version and drew_us <= clock_us and own_code == 1 and own_count == count
      and own_period_us == period_us and own_capacity == capacity and holes == 0 and cool_us <= now and paused_us <= now
      and gap_until_us <= now and (factor >= 1000 or now >= slow_us + recover_us) and share_of_rank
    -- Reads the turns of other askers (lib/turns/turns). Each has seven numbers if all have one need under one limit.
    local turns, askers, others = {}, {}, 0
    local line = is_plain and turns_until_us >= missed_us and redis.call('GET', KEYS[2])
    if line then
      local size = struct.unpack('<d', line)
      local numbers, at = { struct.unpack('<' .. string.rep('d', size), line) }, 2
      for asker in string.gmatch(string.sub(line, size * 8 + 1), '%S+') do
        if numbers[at + 3] ~= 1 or numbers[at + 4] ~= 1 then is_plain = false break end
        if numbers[at + 1] >= missed_us and asker ~= ARGV[1] then
          for each = 1, 7 do turns[others * 7 + each] = numbers[at + each - 1] end
          others = others + 1
          askers[others] = asker
        end
        at = at + 7
      end
    end
    if is_plain then
      local age = now - window_us
      if age >= 1000000 then
        alive_before = age < 2000000 and alive or 0
        alive, window_us = 0, now
      end
      if drew_us == 0 or drew_us < window_us then alive = alive + 1 end
      local most_alive = max(1, alive, alive_before)

      local step = cost * period_us
      local in_horizon = (horizon_us * count) / step
      local slots = floor(min(1000000, capacity / cost + in_horizon))
      local share = max(1, floor(min(slots * 0.75, slots / most_alive)))
      slots = floor(min(1000000, 1 + in_horizon))
      local flow = min(share, max(1, floor(min(slots * 0.75, slots / most_alive))))
      local most, horizon = min(wanted, share), floor((horizon_us * share_of_rank) / 1000)
      local first_us = since_us == 0 and now or min(since_us, now + 1000000)
      local order = rank * 2 ^ 51 + first_us - first_us % 1000
      local before_us = own_since_us > 0 and own_since_us or math.huge
      local at_us, until_us = max(now, last_us), now + horizon
      local level = a < at_us and 0 or (a - at_us) * count + b
      local excess = level + (cost - capacity) * period_us
      local room = (until_us - at_us) * count - excess
      local fit = (until_us < at_us or room < 0) and 0 or floor(room / step) + 1
      -- Returns when there is room for an amount beside the bookings ahead of opens_us, as room_at_us of
      -- lib/turns/turns does.
      local function room_at(opens_us, booked, amount)
        local beyond = amount - capacity
        local room_us = opens_us + ceil(max(0, booked + min(0, beyond) * period_us) / count)
        return beyond > 0 and room_us + ceil((beyond * period_us) / count) or room_us
      end
      local needed, sum, is_too_little = min(wanted, flow) * cost, 0, false
      for at = 0, others * 7 - 1, 7 do
        local its_order = turns[at + 6]
        if its_order > order or (its_order == order and turns[at + 1] >= before_us) then break end
        sum = sum + turns[at + 7]
        local deadline_us = max(until_us, turns[at + 3])
        fit = min(fit, max(0, floor(((deadline_us - at_us) * count - level - (sum - capacity) * period_us) / step)))
        is_too_little = is_too_little or room_at(at_us, level, sum + needed) > deadline_us
      end
      is_too_little = sum > 0 and (is_too_little or room_at(at_us, level, needed) > until_us)
      local granted = is_too_little and 0 or min(most, fit)
      if granted > 0 then
        local slot_us = at_us + ceil(max(0, excess) / count)
        if slot_us - a > (b > 0 and 1 or 0) then a, b, c = slot_us, 0, slot_us end
        local rest = b + granted * step
        local whole_us = floor(rest / count)
        a, b = a + whole_us, rest - whole_us * count
        last_us = max(last_us, at_us + ceil(max(0, excess + (granted - 1) * step) / count))
      end

      local left, turn_us, turn_since_us, binds_at, soonest_us = wanted - granted, 0, 0, 0, 0
      if left > 0 then
        local opens_us = max(now, last_us)
        local booked = a < opens_us and 0 or (a - opens_us) * count + b
        soonest_us = opens_us + ceil(max(0, booked + (cost - capacity) * period_us) / count)
        if granted > 0 then
          local next_call_us = max(first_us, next_since_us == 0 and now or min(next_since_us, now + 1000000))
          local last_call_us = max(next_call_us, last_since_us == 0 and now or min(last_since_us, now + 1000000))
          local rest_us = next_call_us + floor(((last_call_us - next_call_us) * (granted - 1)) / wanted)
          order, before_us = rank * 2 ^ 51 + rest_us - rest_us % 1000, math.huge
        end
        local first = min(left, flow)
        local used = first < left and 1 or first / flow
        if used < 1 and granted > 0 then
          local again = min(granted, max(0, floor((1 - used) * flow)))
          first, used = first + again, used + (again < granted and 1 or again / flow)
        end
        needed, sum = first * cost, 0
        local before, ahead_us, left_us = 0, horizon, floor(horizon / (used >= 1 and 3 or 8))
        for at = 0, others * 7 - 1, 7 do
          local its_order = turns[at + 6]
          if its_order > order or (its_order == order and turns[at + 1] >= before_us) then break end
          sum = sum + turns[at + 7]
          if room_at(opens_us, booked, sum + needed) > max(until_us, turns[at + 3]) then before = sum end
        end
        if sum > 0 and step / count <= left_us / 8 then ahead_us = horizon - left_us end
        local start_us = room_at(opens_us, booked, before + needed)
        turn_us = max(granted == 0 and now + 1000 or now, start_us - ahead_us)
        local due_us = min(turn_us, now + 500000)
        turn_since_us = granted > 0 and now + 1 or min(now, own_since_us > 0 and own_since_us or now)
        turns_until_us = max(turns_until_us, due_us)
        if soonest_us > until_us and soonest_us > opens_us then binds_at = 1 end
        -- Inserts this asker's turn before the first later turn.
        local position = others
        for index = 0, others - 1 do
          local its_order = turns[index * 7 + 6]
          if order < its_order or (order == its_order and turn_since_us < turns[index * 7 + 1]) then
            position = index
            break
          end
        end
        for at = others * 7, position * 7 + 1, -1 do turns[at + 7] = turns[at] end
        local at = position * 7
        turns[at + 1], turns[at + 2], turns[at + 3], turns[at + 4], turns[at + 5] = turn_since_us, due_us, start_us, 1, 1
        turns[at + 6], turns[at + 7] = order, needed
        table.insert(askers, position + 1, ARGV[1])
        others = others + 1
      end
      if left > 0 or own_since_us > 0 then
        if others == 0 then
          redis.call('DEL', KEYS[2])
        else
          others = min(others, 128)
          local own_line = struct.pack('<d' .. string.rep('d', others * 7), 1 + others * 7, unpack(turns, 1, others * 7))
          redis.call('SET', KEYS[2], own_line .. ' ' .. table.concat(askers, ' ', 1, others), 'PX',
            string.format('%.0f', ceil((turns_until_us - now) / 1000) + 60000))
        end
      end

      local drained_us = max(slow_us + recover_us, a < now and now or a + ceil(b / count)) - now
      redis.call('SET', KEYS[1], struct.pack('<ddddddddddddddddddddddddddddd', 29, generation, own_version,
        source, now, now - server_us, window_us, alive, alive_before, holes, last_us, cool_us, paused_us, cut_us,
        factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us, 1, 1, count, period_us,
        capacity, a, b, c, tried_us) .. ARGV[2], 'PX', string.format('%.0f', ceil(max(0, drained_us) / 1000)
        + (source > 0 and 2592000000 or 3600000)))
      local ran_at_us, ran_excess = granted > 0 and at_us or 0, granted > 0 and excess or 0
      return { struct.pack('<dddddddddddddddddd', now, generation, own_version, most_alive, source, turn_us, turn_since_us, 0,
        0, 0, 0, granted, ran_at_us, ran_excess, 0, binds_at, soonest_us, 0), '' }
    end
  end
end

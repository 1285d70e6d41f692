-- A macro at the head of slots-draw: the plain draw, that nearly all draws are. One leaky bucket, calls of one cost and
-- priority, and nothing unusual. It does what the rest of slots-draw does in a third of the time, since Lua makes every
-- function anew for each run of a script. All else falls through to the rest; until then nothing has been written.
-- It repeats the arithmetic of lib/limits/leaky-bucket and of lib/draw: change them together.
if #ARGV[4] == 26 * 8 then
  local pinned_us, horizon_us, drew_us, how, _, own_turn_us, since_us, version, s1, s2, s3, s4,
    n_limits, code, count, period_us, capacity, n_resets, n_keys, n_wishes, _, wanted, rank, _, _, cost =
    struct.unpack('<dddddddddddddddddddddddddd', ARGV[4])
  local packed = how % 2 == 0 and since_us == 0 and n_limits == 1 and code == 1 and n_resets == 0 and n_keys == 0
    and n_wishes == 1 and wanted >= 1 and wanted % 1 == 0 and cost >= 1 and cost <= capacity and cost % 1 == 0
    and horizon_us >= 0 and horizon_us % 1 == 0 and drew_us % 1 == 0 and own_turn_us % 1 == 0
    and redis.call('GET', KEYS[1])
  -- Ten numbers of the bucket, twelve of its scope, seven of its limit and one more: see lib/state/pack.
  if packed and struct.unpack('<d', packed) == 30 and string.sub(packed, 241) == ARGV[2] then
    local _, generation, own_version, is_override, clock_us, skew_us, window_us, alive, alive_before, holes,
      last_us, cool_us, paused_us, cut_us, factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us,
      uneven_until_us, _, own_code, own_count, own_period_us, own_capacity, a, b, c, tried_us =
      struct.unpack('<dddddddddddddddddddddddddddddd', packed)
    local server_us = pinned_us
    if pinned_us == 0 then
      local time = redis.call('TIME')
      server_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    local now = math.max(server_us + skew_us, clock_us)
    local missed_us = now - math.floor(horizon_us / 2)
    if version <= own_version and drew_us <= clock_us and own_code == 1 and own_count == count and own_period_us == period_us
      and own_capacity == capacity and holes == 0 and cool_us <= now and paused_us <= now and gap_until_us <= now
      and (factor >= 1000 or now >= slow_us + recover_us) and uneven_until_us < missed_us and (rank == 2 or rank == 0)
    then
      local age = now - window_us
      local is_new_window = age >= 1000000
      if is_new_window then
        alive_before = age < 2000000 and alive or 0
        alive, window_us = 0, now
      end
      if drew_us == 0 or drew_us < window_us then alive = alive + 1 end
      local most_alive = math.max(1, alive, alive_before)

      local step = cost * period_us
      local step_us = step / count
      local slots = math.floor(math.min(1000000, capacity / cost + (horizon_us * count) / step))
      local share = math.max(1, math.floor(math.min(slots * 0.75, slots / most_alive)))
      local most = math.min(wanted, share)
      local horizon = math.floor((horizon_us * (rank == 2 and s3 or s1)) / 1000)
      local has_turn = own_turn_us >= missed_us
      -- All turns are of normal rank, so a critical call passes them.
      local turns = 0
      if rank == 2 and turns_until_us >= missed_us then turns = redis.call('ZCOUNT', KEYS[2], missed_us, '+inf') end
      local ahead = turns
      if turns > 0 and has_turn then
        ahead = redis.call('ZCOUNT', KEYS[2], missed_us, string.format('(%.0f', own_turn_us))
      end
      local at_us = math.max(now, last_us)
      local until_us = now + horizon - math.floor(ahead * share * step_us)
      local level = a < at_us and 0 or (a - at_us) * count + b
      local excess = level + (cost - capacity) * period_us
      local room = (until_us - at_us) * count - excess
      local fit = (until_us < at_us or room < 0) and 0 or math.floor(room / step) + 1
      local granted = (ahead > 0 and fit < most) and 0 or math.min(most, fit)
      if granted > 0 then
        local first_us = at_us + math.ceil(math.max(0, excess) / count)
        if first_us - a > (b > 0 and 1 or 0) then a, b, c = first_us, 0, first_us end
        local rest = b + granted * step
        local whole_us = math.floor(rest / count)
        a, b = a + whole_us, rest - whole_us * count
        last_us = math.max(last_us, at_us + math.ceil(math.max(0, excess + (granted - 1) * step) / count))
      end

      local left, turn_us, turn_name, binds_at = wanted - granted, 0, '', 0
      if left > 0 then
        local opens_us = math.max(now, last_us)
        local next_level = a < opens_us and 0 or (a - opens_us) * count + b
        local next_us = opens_us + math.ceil(math.max(0, next_level + (cost - capacity) * period_us) / count)
        local before = (granted > 0 and has_turn) and math.max(0, turns - 1) or ahead
        local needed = before * share + math.min(left, share)
        local together = math.min(needed, 1000000, math.floor(capacity / cost))
        local room_us = opens_us
          + math.ceil(math.max(0, next_level + (together * cost - capacity) * period_us) / count)
        turn_us = math.max(now, room_us + math.floor((needed - together) * step_us) - horizon)
        if granted == 0 and own_turn_us > now then turn_us = math.min(turn_us, own_turn_us) end
        turn_name = string.format('%d %.0f %s', rank, math.max(1, math.ceil(step_us)), ARGV[1])
        if ARGV[3] ~= turn_name and ARGV[3] ~= '' then redis.call('ZREM', KEYS[2], ARGV[3]) end
        local is_new = redis.call('ZADD', KEYS[2], turn_us, turn_name) == 1
        turns_until_us = math.max(turns_until_us, turn_us)
        if rank ~= 2 or (cost > 1 and share == 1) then uneven_until_us = math.max(uneven_until_us, turn_us) end
        if is_new or is_new_window then
          redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', missed_us))
          redis.call('PEXPIRE', KEYS[2], math.ceil((turns_until_us - now) / 1000) + 60000)
        end
        if next_us > now + horizon and next_us > opens_us then binds_at = 1 end
      elseif ARGV[3] ~= '' then
        redis.call('ZREM', KEYS[2], ARGV[3])
      end

      local drained_us = math.max(slow_us + recover_us, a < now and now or a + math.ceil(b / count)) - now
      redis.call('SET', KEYS[1], struct.pack('<dddddddddddddddddddddddddddddd', 30, generation, own_version,
        is_override, now, now - server_us, window_us, alive, alive_before, holes, last_us, cool_us, paused_us, cut_us,
        factor, slow_us, recover_us, gap_us, gap_until_us, turns_until_us, uneven_until_us, 1, 1, count, period_us,
        capacity, a, b, c, tried_us) .. ARGV[2], 'PX', math.ceil(math.max(0, drained_us) / 1000)
        + (is_override == 1 and 2592000000 or 3600000))
      local ran_at_us, ran_excess = granted > 0 and at_us or 0, granted > 0 and excess or 0
      return { now, generation, own_version, most_alive, '', turn_us, turn_name, 0, is_override,
        { granted, ran_at_us, ran_excess, 0, binds_at, 0, '', 0 } }
    end
  end
end

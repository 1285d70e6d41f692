-- True if a scope delays nothing: it has no cooldown, pause, cut rate, gap or turn. Takes its packed numbers from
-- cool_until_us to turns_until_us. See lib/state/pack.
local function is_quiet(packed, now)
  local cool_us, paused_us, _, _, since_us, recover_us, _, gap_until_us, turns_until_us =
    struct.unpack('<ddddddddd', packed)
  return cool_us <= now and paused_us <= now and gap_until_us <= now and turns_until_us < now
    and now >= since_us + recover_us
end

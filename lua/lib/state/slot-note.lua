-- Stores the state of a slot that a server has granted to a caller. The Redis key is a hash of until_ms (if the slot
-- was renewed), settled, and released (the request that released it). It expires when the slot is over.

-- Applies look (which changes nothing), settle, release or renew. Returns the previous state (held, settled, or
-- over), the ms for which the slot is held now, and whether this is the first settlement. A caller may repeat a
-- request whose reply was lost, and gets the same reply.
local function note_slot(key, what, first_ms, hold_ms, request, now_ms)
  local kept = redis.call('HMGET', key, 'until_ms', 'settled', 'released')
  local until_ms = tonumber(kept[1] or first_ms)
  local is_released = kept[3] and kept[3] ~= request
  if is_released or until_ms <= now_ms then return 'over', 0, false end

  local is_first = what == 'settle' and not kept[2]
  if is_first then redis.call('HSET', key, 'settled', request) end
  if what == 'release' then redis.call('HSET', key, 'released', request) end
  if what == 'renew' then
    until_ms = now_ms + hold_ms
    redis.call('HSET', key, 'until_ms', string.format('%.0f', until_ms))
  end
  if what ~= 'look' then redis.call('PEXPIRE', key, math.max(until_ms, first_ms) - now_ms) end
  local is_settled = kept[2] and kept[2] ~= request
  return is_settled and 'settled' or 'held', until_ms - now_ms, is_first
end

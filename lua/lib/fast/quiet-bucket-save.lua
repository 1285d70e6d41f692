-- A macro over the locals of slots-try and scopes-try: advances the bucket's clock.
local clocks = struct.pack('<dd', now, now - server_us)
local moved = string.sub(packed, 1, 32) .. clocks .. string.sub(packed, 49)
redis.call('SET', KEYS[1], moved, 'PX', source > 0 and 2592000000 or 3600000)

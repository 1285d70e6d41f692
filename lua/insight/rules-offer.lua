--[[
  rules-offer: offers the rules of a file. They become active unless newer ones are active. If several processes offer the
  same rules, one of them applies them.

  KEYS  [1] the beginning of all keys of the fleet
  ARGV  [1] version: the version of the rules  [2] changed_at_ms: when their file was changed, in ms since 1970
        [3] digest: their digest  [4] about: their file and its reader, as JSON
        [5] replica: the process that offers them  [6] claim_ms: ms for which it may apply them
        [7] kept_ms: ms for which they are kept
  Reply "apply", "wait", "done" or "older", and the rules that were active before, or ''
]]
local base, version, changed_ms, digest = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local claim_ms, kept_ms = ARGV[6], ARGV[7]
local head_key, claim_key = base .. ':rules', base .. ':rules:claim:' .. digest
local before = redis.call('GET', head_key) or ''

local its_version, its_changed_ms, its_digest = string.match(before, '^(%d+)|(%d+)|([^|]*)|')
if its_digest and its_digest ~= digest then
  its_version, its_changed_ms = tonumber(its_version), tonumber(its_changed_ms)
  local is_newer = version > its_version or (version == its_version and changed_ms > its_changed_ms)
  if not is_newer then return { 'older', before } end
end
if its_digest == digest then
  for _, name in ipairs({ '', ':texts' }) do redis.call('PEXPIRE', head_key .. name, kept_ms) end
else
  redis.call('SET', head_key, ARGV[1] .. '|' .. ARGV[2] .. '|' .. digest .. '|' .. ARGV[4], 'PX', kept_ms)
end
if redis.call('GET', base .. ':rules:done') == digest then return { 'done', before } end
local is_mine = redis.call('SET', claim_key, ARGV[5], 'NX', 'PX', claim_ms) or redis.call('GET', claim_key) == ARGV[5]
return { is_mine and 'apply' or 'wait', before }

-- Returns a function that returns the packed numbers one by one, and then nil. All numbers come in one argument,
-- because Redis takes longer to parse twenty arguments. Returns nil if a number is not whole.
local function numbers_of(packed)
  local numbers = { struct.unpack('<' .. string.rep('d', #packed / 8), packed) }
  for index = 1, #packed / 8 do
    local number = numbers[index]
    -- Also rejects NaN, which equals no number, and values from 2^53 on, because a double cannot represent all whole
    -- numbers there.
    if number ~= math.floor(number) or number >= 2 ^ 53 or number <= -(2 ^ 53) then return nil end
  end
  -- Removes the last value, because struct.unpack also returns the position at which it ended.
  numbers[#packed / 8 + 1] = nil
  local at = 0
  return function()
    at = at + 1
    return numbers[at]
  end
end

-- Packs whole numbers as doubles, in parts that Lua can unpack.
local MOST_PACKED = 2000
local function pack_numbers(numbers)
  local count = #numbers
  if count <= MOST_PACKED then return struct.pack('<' .. string.rep('d', count), unpack(numbers)) end
  local parts = {}
  for first = 1, count, MOST_PACKED do
    local last = math.min(first + MOST_PACKED - 1, count)
    parts[#parts + 1] = struct.pack('<' .. string.rep('d', last - first + 1), unpack(numbers, first, last))
  end
  return table.concat(parts)
end

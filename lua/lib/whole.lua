-- is_whole(value, least): a number without a fraction that a double still holds exactly; NaN is none.
local function is_whole(value, least)
  return value ~= nil and value >= least and value < 2 ^ 53 and value == math.floor(value)
end

import { describe, expect, it } from "vitest";
import type { MakeScript } from "../../../src/stores/memory/lua/script.ts";
import * as runtime from "../../../src/stores/memory/lua/runtime.ts";
import { translate } from "../../../src/stores/memory/lua/translate.ts";

/** The values that a script returns. */
function run(source: string): runtime.Values {
  // oxlint-disable-next-line no-implied-eval -- the text is the translation of a script of this test
  const make = new Function(`return ${translate(source)}`)() as MakeScript;
  return make(runtime)(runtime.tableOf([]), runtime.tableOf([]), {});
}

describe("the translation of Lua", () => {
  it.each([
    ["a method call", "local a = {} return a:b()", "the method call of b is not supported"],
    ["an unknown function", "return os.time()", "the global os is not supported"],
    ["an unknown function of math", "return math.sqrt(4)", "math.sqrt is not supported"],
    ["a global", "count = 1", "assigns to the global count"],
  ])("refuses %s", (_what, source, message) => {
    expect(() => translate(source)).toThrow(message);
  });

  it.each([
    ["pattern, to match", "string.match('(a)', '%b()')", "the Lua pattern %b()"],
    ["pattern, to replace", "string.gsub('a', '%f[a]', 'b')", "the Lua pattern %f[a]"],
    ["pattern, of a set", "string.find('a', '[%D]')", "the Lua pattern [%D]"],
    ["struct format, to pack", "struct.pack('>I4', 1)", "the struct format >I4"],
    ["struct format, to unpack", "struct.unpack('<i8', '12345678')", "the struct format <i8"],
    ["format of a string", "string.format('%q', 'a')", "the format %q"],
    ["format of a number", "string.format('%-5d', 1)", "the format %-5d"],
  ])("makes a script that fails at an unknown %s", (_what, call, name) => {
    expect(() => run(`return ${call}`)).toThrow(`${name} is not supported`);
  });

  it.each([
    ["lengths", "local t = {} t[#t + 1], t[#t + 2] = 1, 2 return t[1] * 10 + t[2]", 12],
    ["locals", "local t, i = {}, 1 i, t[i] = 5, 7 return t[1] * 10 + i", 75],
  ])("evaluates %s in the indexes of an assignment before it assigns", (_what, source, result) => {
    expect(run(source)).toBe(result);
  });

  it.each(["t.a + 1", "1 - t.a", "t.a * 2", "t[1] / 2", "t.a % 2", "-t.a", "t.a + t.b"])(
    "makes a script in which arithmetic on nil results in NaN: %s",
    (sum) => {
      expect(run(`local t = {} return ${sum}`)).toBeNaN();
    },
  );
});

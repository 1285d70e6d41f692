import { expect, it } from "vitest";
import { undeclaredGlobals } from "../../support/lua/lua-globals.ts";
import { missingArguments } from "../../support/lua/lua-header.ts";

it("finds an undeclared name, and its line", () => {
  const source = "local level = tonumber(ARGV[1])\nreturn math.max(levle, 0)\n";

  expect(undeclaredGlobals(source)).toEqual([{ name: "levle", line: 2 }]);
});

it("finds a local function that is called above its declaration", () => {
  const source = "local now = now_us()\nlocal function now_us() return 1 end\nreturn now\n";

  expect(undeclaredGlobals(source)).toEqual([{ name: "now_us", line: 1 }]);
});

it("finds an assignment without its local", () => {
  expect(undeclaredGlobals("level = 1\n")).toEqual([{ name: "level", line: 1 }]);
});

it("refuses globals that scripts must not use", () => {
  const source = "return cmsgpack.pack({ os.time() })\n";

  expect(undeclaredGlobals(source).map(({ name }) => name)).toEqual(["cmsgpack", "os"]);
});

it("allows what Redis and Lua provide", () => {
  const source = "for _, key in ipairs(KEYS) do redis.call('DEL', key) end\nreturn #ARGV\n";

  expect(undeclaredGlobals(source)).toEqual([]);
});

it("refuses syntax of newer Lua versions", () => {
  expect(() => undeclaredGlobals("return 7 // 2\n")).toThrow("near '/'");
});

const HEADER = `--[[
  jobs-move: moves jobs.

  KEYS  [1] delayed
  ARGV  [1] prefix: the prefix of the keys  [2] in_ms: ms from now on, or "" if
            [1] is empty  [3…] id, key: of each job
  Reply nothing
]]`;

it("accepts a header that lists the arguments of the shapes by name", () => {
  const wanted = missingArguments(HEADER, ["prefix", "inMs", { each: ["id", "key"] }]);

  expect(wanted).toBeUndefined();
});

it.each([
  ["in another order", ["inMs", "prefix", { each: ["id", "key"] }]],
  ["of which one is missing", ["prefix", "inMs"]],
  ["that do not repeat", ["prefix", "inMs", "id"]],
])("refuses a header with arguments %s", (_name, argNames) => {
  expect(missingArguments(HEADER, argNames)).toContain("[1] ");
});

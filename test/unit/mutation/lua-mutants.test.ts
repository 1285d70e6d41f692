import { describe, expect, it } from "vitest";
import { luaMutants } from "../../mutation/lua-mutants.ts";
import { sampleOf } from "../../mutation/sample.ts";

/** The whole text with each change made. */
function changed(text: string): readonly string[] {
  return luaMutants("a.lua", text).map(
    ({ from, to, after }) => text.slice(0, from) + after + text.slice(to),
  );
}

describe("the mutants of a Lua text", () => {
  it.each([
    ["a = b < c", ["a = b <= c", "a = b >= c"]],
    ["a = b and not c", ["a = b or not c", "a = b and  c"]],
    ["a = b - c", ["a = b + c"]],
    ["a = -b", ["a = b"]],
    ["return -b", ["return b"]],
    ["a = b[c] - d", ["a = b[c] + d"]],
    ["a = b + 10", ["a = b - 10", "a = b + (10 + 1)"]],
    ["a = math.max(b, c)", ["a = math.min(b, c)"]],
    ["if a then b() end", ["if not (a) then b() end"]],
    ["while a do b() end", ["while not (a) do b() end"]],
    ["a = 'b < 1' -- c < 1", []],
  ])("of %j change one thing each", (text, mutants) => {
    expect(changed(text)).toEqual(mutants);
  });

  it("say on which line they are", () => {
    const lines = luaMutants("a.lua", "a = true\nb = c\nd = e == f").map(({ line }) => line);

    expect(lines).toEqual([1, 3]);
  });
});

describe("a sample", () => {
  const all = Array.from({ length: 100 }, (_, index) => `m${index}`);
  const nameOf = (each: string): string => each;

  it("is the same for the same seed, in whatever order the mutants come", () => {
    const sample = sampleOf(all, nameOf, { size: 10, seed: 1 });

    expect(new Set(sample).size).toBe(10);
    expect(sampleOf(all.toReversed(), nameOf, { size: 10, seed: 1 })).toEqual(sample);
    expect(sampleOf(all, nameOf, { size: 10, seed: 2 })).not.toEqual(sample);
  });

  it("holds all of them unless a size is given", () => {
    expect(sampleOf(all, nameOf, { size: undefined, seed: 1 })).toEqual(all);
  });
});

import { describe, expect, it } from "vitest";
import { InvalidOptionError, LineFullError } from "../../../src/core/errors.ts";
import { withForever } from "../../../src/core/describe.ts";

/** What JSON makes of a value. */
function throughJson(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

describe("a result in JSON", () => {
  it('shows an endless time as "forever" at any depth, and keeps Infinity in the process', () => {
    const result = withForever({ pausedForMs: Infinity, waiting: 3, key: undefined });

    expect(result).toEqual({ pausedForMs: Infinity, waiting: 3, key: undefined });
    expect(throughJson(result)).toEqual({ pausedForMs: "forever", waiting: 3 });
    expect(throughJson([{ state: result }])).toEqual([
      { state: { pausedForMs: "forever", waiting: 3 } },
    ]);
  });

  it("is unchanged if all its times end", () => {
    const result = { pausedForMs: 5 };

    expect(withForever(result)).toBe(result);
    expect(Reflect.ownKeys(result)).toEqual(["pausedForMs"]);
  });
});

describe("an error in JSON", () => {
  it("has its name, code, message and facts", () => {
    const facts = { bucket: "a", key: "b", waiting: 7, priority: "low", retryAfterMs: 120 };
    const error = new LineFullError(facts);

    expect(throughJson(error)).toEqual({
      name: "LineFullError",
      code: "ERR_LINE_FULL",
      message: error.message,
      bucket: "a",
      key: "b",
      waiting: 7,
      retryAfterMs: 120,
    });
  });

  it("shows endless times", () => {
    const facts = { bucket: "a", key: "b", waiting: 7, priority: "low", retryAfterMs: Infinity };

    expect(throughJson(new LineFullError(facts))).toMatchObject({ retryAfterMs: "forever" });
  });

  const cycle: { self?: object } = {};
  cycle.self = cycle;
  it.each([
    [Infinity, "Infinity"],
    [Number.NaN, "NaN"],
    [5n, "5"],
    [() => 1, "a function"],
    [cycle, "[object Object]"],
    [{ id: 5n }, '{"id":"5n"}'],
    ["100/x", "100/x"],
    [{ calls: 5 }, { calls: 5 }],
  ])("shows a refused value of %o", (value, shown) => {
    const error = new InvalidOptionError({ where: "a()", option: "rate", value, remedy: "no" });

    expect(throughJson(error)).toMatchObject({ option: "rate", value: shown });
  });
});

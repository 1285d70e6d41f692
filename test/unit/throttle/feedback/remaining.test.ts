import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { readRemaining } from "../../../../src/throttle/feedback/remaining.ts";

const nowMs = Date.UTC(2026, 10, 21, 12, 0, 0);

describe("what is left of a quota", () => {
  it("is read of OpenAI's calls and tokens", () => {
    const headers = new Headers({
      "x-ratelimit-limit-requests": "5000",
      "x-ratelimit-remaining-requests": "4999",
      "x-ratelimit-reset-requests": "12ms",
      "x-ratelimit-limit-tokens": "160000",
      "x-ratelimit-remaining-tokens": "159976",
      "x-ratelimit-reset-tokens": "6m0s",
    });

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining: 4_999, limit: 5_000, resetAfterMs: 12 },
      { unit: "tokens", remaining: 159_976, limit: 160_000, resetAfterMs: 360_000 },
    ]);
  });

  it("is not read of Azure's -1 and 0, which stand for what it does not know", () => {
    const headers = {
      "x-ratelimit-limit-requests": "0",
      "x-ratelimit-remaining-requests": "0",
      "x-ratelimit-reset-requests": "0",
      "x-ratelimit-limit-tokens": "-1",
      "x-ratelimit-remaining-tokens": "-1",
      "x-ratelimit-reset-tokens": "0",
    };

    expect(readRemaining(headers, nowMs)).toEqual([]);
  });

  it("is read of each of Anthropic's units", () => {
    const of = (unit: string, remaining: string): [string, string][] => [
      [`anthropic-ratelimit-${unit}-limit`, "80000"],
      [`anthropic-ratelimit-${unit}-remaining`, remaining],
      [`anthropic-ratelimit-${unit}-reset`, "2026-11-21T12:00:07Z"],
    ];
    const headers = new Headers([
      ...of("requests", "999"),
      ...of("tokens", "70000"),
      ...of("input-tokens", "60000"),
      ...of("output-tokens", "0"),
    ]);

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining: 999, limit: 80_000, resetAfterMs: 7_000 },
      { unit: "tokens", remaining: 70_000, limit: 80_000, resetAfterMs: 7_000 },
      { unit: "input-tokens", remaining: 60_000, limit: 80_000, resetAfterMs: 7_000 },
      { unit: "output-tokens", remaining: 0, limit: 80_000, resetAfterMs: 7_000 },
    ]);
  });

  it("is read of GitHub's headers", () => {
    const headers = {
      "x-ratelimit-limit": "5000",
      "x-ratelimit-remaining": "4987",
      "x-ratelimit-reset": String(nowMs / 1_000 + 1_800),
      "x-ratelimit-resource": "core",
    };

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining: 4_987, limit: 5_000, resetAfterMs: 1_800_000 },
    ]);
  });

  it("is reset by the clock of the server, as the response's Date shows it", () => {
    const headers = {
      date: "Sat, 21 Nov 2026 12:00:00 GMT",
      "x-ratelimit-remaining": "7",
      "x-ratelimit-reset": String(nowMs / 1_000 + 20),
    };

    expect(readRemaining(headers, nowMs + 3_600_000)).toMatchObject([{ resetAfterMs: 20_000 }]);
  });

  it("goes by Discord's Reset-After rather than by its clock", () => {
    const headers = {
      "X-RateLimit-Limit": "5",
      "X-RateLimit-Remaining": "0",
      "X-RateLimit-Reset": "1470173023.123",
      "X-RateLimit-Reset-After": "64.57",
    };

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining: 0, limit: 5, resetAfterMs: 64_570 },
    ]);
  });

  it.each([
    ["32/40", 8, 40, 16_000],
    ["200/400", 200, 400, 10_000],
    ["41/40", 0, 40, 20_500],
  ])("is read of Shopify's %s", (given, remaining, limit, resetAfterMs) => {
    const headers = { "X-Shopify-Shop-Api-Call-Limit": given };

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining, limit, resetAfterMs },
    ]);
  });

  it("is not read of an answer that came out of a cache", () => {
    const headers = { ratelimit: '"default";r=50;t=30', age: "12" };

    expect(readRemaining(headers, nowMs)).toEqual([]);
  });

  it.each([
    { "x-ratelimit-remaining": "5" },
    { "x-ratelimit-remaining": "5", "x-ratelimit-reset": "soon" },
    { "x-ratelimit-remaining": "1e3", "x-ratelimit-reset": "9" },
    { "x-ratelimit-remaining": "999999999999999", "x-ratelimit-reset": "9" },
    { "x-ratelimit-remaining": "5", "x-ratelimit-reset": "99999999" },
    { "x-shopify-shop-api-call-limit": "32/0" },
    { "x-shopify-shop-api-call-limit": "32" },
    { "anthropic-ratelimit-tokens-remaining": "5", "anthropic-ratelimit-tokens-reset": "tomorrow" },
  ])("is not read of absurd headers, as %j", (headers) => {
    expect(readRemaining(headers, nowMs)).toEqual([]);
  });
});

describe("the RateLimit field of the IETF's draft", () => {
  it("is read with its policies' sizes and units", () => {
    const headers = {
      "ratelimit-policy":
        '"burst";q=100;w=60,"bytes";q=65535;qu="content-bytes";w=10;pk=:sdfjLJUOUH==:',
      ratelimit: '"burst";r=50;t=30, "bytes";r=1000;t=5;pk=:sdfjLJUOUH==:;acme-note="a;b,c"',
    };

    expect(readRemaining(headers, nowMs)).toEqual([
      { unit: "calls", remaining: 50, limit: 100, resetAfterMs: 30_000 },
      { unit: "content-bytes", remaining: 1_000, limit: 65_535, resetAfterMs: 5_000 },
    ]);
  });

  it.each([
    ["needs no policy", '"default";r=50;t=30', undefined, 30_000],
    [
      "takes its policy's window when it names none",
      '"default";r=50',
      '"default";q=50;w=10',
      10_000,
    ],
    ["finds its policy by a name with quotes", String.raw`"a \"b\" \\";r=50;t=7`, undefined, 7_000],
    [
      "takes the last of a parameter that is given twice",
      '"default";r=1;r=50;t=3',
      undefined,
      3_000,
    ],
  ])("%s", (_behaviour, ratelimit, policy, resetAfterMs) => {
    const [read] = readRemaining({ ratelimit, "ratelimit-policy": policy }, nowMs);

    expect(read).toMatchObject({ remaining: 50, resetAfterMs });
  });

  it("takes no more to be left than the policy gives", () => {
    const headers = { ratelimit: '"a";r=999999;t=1', "ratelimit-policy": '"a";q=100;w=60' };

    expect(readRemaining(headers, nowMs)).toMatchObject([{ remaining: 100 }]);
  });

  it.each([
    ["lacks r", '"default";t=30'],
    ["has a negative r", '"default";r=-1;t=30'],
    ["has a negative zero as r", '"default";r=-0;t=30'],
    ["has a decimal t", '"default";r=5;t=1.5'],
    ["has neither t nor a policy", '"default";r=5'],
    ["is a token", "default;r=5;t=30"],
    ["is an inner list", '("a" "b");r=5;t=30'],
    ["has r as a text", '"default";r="5";t=30'],
    ["has an r that is a flag", '"default";r;t=30'],
    ["ends a hundred years from now", '"default";r=5;t=3153600000'],
  ])("loses an item that %s, and keeps the next", (_flaw, item) => {
    const read = readRemaining({ ratelimit: `${item}, "good";r=7;t=1` }, nowMs);

    expect(read).toEqual([{ unit: "calls", remaining: 7, limit: undefined, resetAfterMs: 1_000 }]);
  });

  it.each(['"2 units"', "requests", "?1", "5"])("loses an item whose unit is %s", (unit) => {
    const headers = { ratelimit: '"a";r=5;t=1', "ratelimit-policy": `"a";q=9;qu=${unit}` };

    expect(readRemaining(headers, nowMs)).toEqual([]);
  });

  it.each([
    "limit=100, remaining=50, rest=5",
    '"a";r=5;t=1,',
    '"a;r=5;t=1',
    '"a";r=5;t=1 "b"',
    '"a";r=12345678901234567890;t=1',
    '("a" "b");r=5;t=1',
    '"ä";r=5;t=1',
    '"a";R=5;r=5;t=1',
    `"a"${";a".repeat(1_300)}!`,
    `"a";b="${"\\\\".repeat(1_000)}`,
    `"a";r=5;t=1, ${'"b";r=1;t=1, '.repeat(1_000)}"c";r=1;t=1`,
  ])("is ignored when it is malformed, as %#", (ratelimit) => {
    expect(readRemaining({ ratelimit }, nowMs)).toEqual([]);
  });
});

describe("hostile headers", () => {
  const name = fc.constantFrom(
    "ratelimit",
    "ratelimit-policy",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "x-shopify-shop-api-call-limit",
  );
  const broken = fc.string({
    unit: fc.constantFrom(...Array.from('"\\;=,:rtqw0159.-ms/ahT\u00e4')),
    maxLength: 40,
  });
  const good = fc.constantFrom(
    '"a";r=5;t=9',
    '"a";q=9;w=1',
    "5",
    "0",
    "6m0s",
    "1e400",
    "9".repeat(15),
    "3/4",
  );
  const value = fc.oneof(good, broken, fc.anything());

  it("give whole numbers within bounds, or nothing", () => {
    fc.assert(
      fc.property(fc.oneof(fc.dictionary(name, value), fc.anything()), (headers) => {
        for (const { unit, remaining, limit = 1, resetAfterMs } of readRemaining(headers, nowMs)) {
          expect(unit).toMatch(/^[a-z][a-z0-9-]*$/);
          expect(Number.isSafeInteger(remaining) && remaining >= 0 && remaining <= 1e12).toBe(true);
          expect(Number.isSafeInteger(limit) && limit >= 1).toBe(true);
          expect(Number.isSafeInteger(resetAfterMs) && resetAfterMs >= 0).toBe(true);
          expect(resetAfterMs).toBeLessThanOrEqual(366 * 86_400_000);
        }
      }),
      { numRuns: 10_000 },
    );
  });
});

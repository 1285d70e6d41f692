import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Decision, LimitDecision } from "../../../../src/throttle/try/decision.ts";
import { interpret } from "../../../../src/throttle/feedback/answer.ts";
import { readRemaining } from "../../../../src/throttle/feedback/remaining.ts";
import { rateLimitHeaders } from "../../../../src/throttle/try/rate-limit-headers.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

afterEach(() => {
  vi.useRealTimers();
});

function limitWith(given: Partial<LimitDecision> = {}): LimitDecision {
  return {
    name: "100/min",
    unit: "calls",
    scope: "bucket",
    level: undefined,
    capacity: 100,
    windowMs: 60_000,
    remaining: 3,
    resetAfterMs: 58_200,
    retryAfterMs: 0,
    ...given,
  };
}

function decisionWith(given: Partial<Decision> = {}): Decision {
  return {
    allowed: true,
    remaining: 3,
    resetAfterMs: 58_200,
    retryAfterMs: 0,
    limitedBy: undefined,
    limits: [limitWith()],
    ...given,
  };
}

describe("the headers of a decision", () => {
  it("show one limit in whole seconds", () => {
    expect(rateLimitHeaders(decisionWith())).toEqual({
      "RateLimit-Policy": '"100/min";q=100;w=60',
      RateLimit: '"100/min";r=3;t=59',
      "X-RateLimit-Limit": "100",
      "X-RateLimit-Remaining": "3",
      "X-RateLimit-Reset": "59",
    });
  });

  it("show each limit, and in X-RateLimit the one with the least left", () => {
    const perDay = limitWith({
      name: "1000/d",
      scope: "key",
      capacity: 1_000,
      windowMs: 86_400_000,
      remaining: 2,
    });

    const headers = rateLimitHeaders(decisionWith({ limits: [limitWith(), perDay] }));

    expect(headers["RateLimit-Policy"]).toBe('"100/min";q=100;w=60, "1000/d";q=1000;w=86400');
    expect(headers["RateLimit"]).toBe('"100/min";r=3;t=59, "1000/d";r=2;t=59');
    expect(headers["X-RateLimit-Limit"]).toBe("1000");
  });

  it.each([
    [1, "1"],
    [600, "1"],
    [1_000, "1"],
    [1_001, "2"],
    [0, "1"],
  ])("ask with %d ms for a wait of %s s", (retryAfterMs, expected) => {
    const refused = decisionWith({ allowed: false, retryAfterMs, limitedBy: "100/min" });

    expect(rateLimitHeaders(refused)["Retry-After"]).toBe(expected);
  });

  it("name no effective window that ends after Retry-After, for a limit that refuses", () => {
    const limits = [limitWith({ remaining: 0, retryAfterMs: 600 })];
    const refused = decisionWith({
      allowed: false,
      retryAfterMs: 600,
      limitedBy: "100/min",
      limits,
    });

    expect(rateLimitHeaders(refused)).toMatchObject({
      RateLimit: '"100/min";r=0;t=1',
      "Retry-After": "1",
    });
  });

  it("show in X-RateLimit the limit that refused, though another has less left", () => {
    const wide = limitWith({ name: "9/h", capacity: 9, remaining: 4, retryAfterMs: 1_800_000 });
    const refused = decisionWith({ allowed: false, limitedBy: "9/h", limits: [limitWith(), wide] });

    expect(rateLimitHeaders(refused)["X-RateLimit-Limit"]).toBe("9");
  });

  it.each([
    ["100/s", '"100/s";q=100;w=1', '"100/s";r=99;t=1'],
    ["60/s", '"60/s";q=60;w=1', '"60/s";r=59;t=1'],
    ["29/s", '"29/s";q=29;w=1', '"29/s";r=28;t=1'],
    ["10000/s", '"10000/s";q=10000;w=1', '"10000/s";r=9990;t=1'],
    ["100/min", '"100/min";q=5;w=3', '"100/min";r=4;t=1'],
    ["1/420ms", '"1/420ms";q=50;w=21', '"1/420ms";r=49;t=1'],
    ["101/61s", '"101/61s";q=99;w=60', '"101/61s";r=98;t=1'],
    ["1/s", '"1/s";q=1;w=1', '"1/s";r=0;t=1'],
  ])("show for %s, evenly spaced, what passes in whole seconds", async (rate, policy, left) => {
    vi.useFakeTimers();
    const { bucket } = createTestBucket({ rate });

    const headers = rateLimitHeaders(await bucket.tryDraw());

    expect(headers).toMatchObject({ "RateLimit-Policy": policy, RateLimit: left });
    expect(headers["X-RateLimit-Limit"]).toBe(/q=(\d+)/.exec(policy)?.[1]);
    expect(headers["X-RateLimit-Remaining"]).toBe(/r=(\d+)/.exec(left)?.[1]);
    await bucket.close();
  });

  it("keep a client that spaces calls by them at the rate of the policy", () => {
    const limits = [limitWith({ capacity: 1, windowMs: 10, remaining: 0, resetAfterMs: 10 })];

    const [left] = readRemaining(rateLimitHeaders(decisionWith({ limits })), Date.now());

    expect(left!.resetAfterMs / left!.remaining).toBeLessThan(10.2);
  });

  it("show after a refusal that nothing is left until Retry-After, however short the window", () => {
    const used = { capacity: 1, windowMs: 10, remaining: 0, resetAfterMs: 5, retryAfterMs: 5 };
    const refused = decisionWith({
      allowed: false,
      retryAfterMs: 5,
      limitedBy: "100/min",
      limits: [limitWith(used)],
    });

    expect(rateLimitHeaders(refused)).toMatchObject({
      "RateLimit-Policy": '"100/min";q=100;w=1',
      RateLimit: '"100/min";r=0;t=1',
      "Retry-After": "1",
    });
  });

  it("show calls at once by the draft's name for them, without a window", () => {
    const limits = [limitWith({ name: "concurrency 5", capacity: 5, windowMs: undefined })];

    const headers = rateLimitHeaders(decisionWith({ limits }));

    expect(headers["RateLimit-Policy"]).toBe('"concurrency 5";q=5;qu="concurrent-requests"');
    expect(headers["RateLimit"]).toBe('"concurrency 5";r=3');
  });

  it("show bytes, but not tokens, which clients would take for calls", () => {
    const limits = [
      limitWith({ name: "bytes", unit: "content-bytes" }),
      limitWith({ name: "tokens", unit: "tokens", remaining: 0 }),
    ];

    const headers = rateLimitHeaders(decisionWith({ limits }));

    expect(headers["RateLimit-Policy"]).toBe('"bytes";q=100;qu="content-bytes";w=60');
    expect(headers["RateLimit"]).toBe('"bytes";r=3;t=59');
  });

  it.each([[[]], [[limitWith({ unit: "tokens" })]]])(
    "are few when there is little to show",
    (limits) => {
      const refused = decisionWith({ allowed: false, retryAfterMs: 5_000, limits });

      expect(rateLimitHeaders(refused)).toEqual({ "Retry-After": "5" });
    },
  );

  it("distinguish a bucket's limit from a key's of the same name", () => {
    const limits = [limitWith(), limitWith({ scope: "key" })];

    const headers = rateLimitHeaders(decisionWith({ limits }));

    expect(headers["RateLimit"]).toBe('"100/min";r=3;t=59, "100/min per key";r=3;t=59');
  });

  it.each([
    ['say "hi" \\', String.raw`"say \"hi\" \\"`],
    ["a\r\nSet-Cookie: b", '"a%0D%0ASet-Cookie: b"'],
    ["übergabe", '"%C3%BCbergabe"'],
    ["\ud800", '"%EF%BF%BD"'],
  ])("write the name %j safely", (name, expected) => {
    const headers = rateLimitHeaders(decisionWith({ limits: [limitWith({ name })] }));

    expect(headers["RateLimit"]).toBe(`${expected};r=3;t=59`);
  });
});

describe("the headers of any decision", () => {
  const count = fc.oneof(fc.nat(1_000), fc.double(), fc.constantFrom(1e21, -1, Number.NaN));
  const anyLimit: fc.Arbitrary<LimitDecision> = fc.record({
    name: fc.oneof(fc.string({ unit: "binary", maxLength: 300 }), fc.constantFrom("a", 'a"\\')),
    unit: fc.constantFrom("calls", "tokens", "content-bytes"),
    scope: fc.constantFrom("bucket", "key"),
    level: fc.constantFrom(0, undefined),
    capacity: count,
    windowMs: fc.option(count, { nil: undefined }),
    remaining: count,
    resetAfterMs: count,
    retryAfterMs: count,
  });
  const anyDecision: fc.Arbitrary<Decision> = fc.record({
    allowed: fc.boolean(),
    remaining: count,
    resetAfterMs: count,
    retryAfterMs: count,
    limitedBy: fc.option(fc.string(), { nil: undefined }),
    limits: fc.array(anyLimit, { maxLength: 4 }),
  });

  it("are safe to send, and lists that a client can read", () => {
    const parameters = String.raw`(?:;(?:[qrtw]=\d{1,15}|qu="[a-z-]+"))+`;
    const item = String.raw`"(?:[ !#-\[\]-~]|\\["\\])*"${parameters}`;
    const list = new RegExp(`^${item}(?:, ${item})*$`);
    fc.assert(
      fc.property(anyDecision, (decision) => {
        const headers = rateLimitHeaders(decision);

        expect(() => new Headers(headers)).not.toThrow();
        for (const [name, value] of Object.entries(headers)) {
          expect(value).toMatch(name.startsWith("RateLimit") ? list : /^\d{1,15}$/);
        }
      }),
      { numRuns: 10_000 },
    );
  });

  it("are read back by the other end", () => {
    const limits = [limitWith({ name: 'a "b"', retryAfterMs: 2_000, remaining: 0 })];
    const refused = decisionWith({ allowed: false, retryAfterMs: 2_000, limits });
    const headers = rateLimitHeaders(refused);

    expect(interpret({ status: 429, headers }, Date.now()).answer.afterMs).toBe(2_000);
    expect(readRemaining(headers, Date.now())).toEqual([
      { unit: "calls", remaining: 0, limit: 100, resetAfterMs: 59_000 },
      { unit: "calls", remaining: 0, limit: 100, resetAfterMs: 2_000 },
    ]);
  });
});

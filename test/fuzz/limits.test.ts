import fc from "fast-check";
import { afterAll, describe, expect, it } from "vitest";
import {
  budget,
  concurrency,
  contract,
  createSluice,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
  type Limit,
} from "sluice";
import { hostileNumber, hostileOptions, hostileText, hostileValue } from "./support/hostile.ts";
import { forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

const sluice = createSluice({ logger: SILENT });
afterAll(() => sluice.close());

const count = fc.oneof(fc.integer({ min: 1, max: 1e9 }), hostileNumber, hostileValue);
const per = fc.oneof(
  fc.constantFrom("1ms", "1s", "1min", "1d", "366d"),
  fc.tuple(fc.nat(), fc.constantFrom("ms", "s", "min", "h", "d")).map(([n, unit]) => `${n}${unit}`),
  hostileText,
  hostileValue,
);
const rate = fc.oneof(
  fc.tuple(fc.nat(2e9), per).map(([n, each]) => `${n}/${String(each === null)}`),
  fc.tuple(fc.nat(2e9), fc.constantFrom("ms", "2s", "h")).map(([n, each]) => `${n}/${each}`),
  hostileOptions({ calls: count, per }),
  hostileValue,
);
const unit = fc.oneof(fc.constantFrom("tokens", "constructor", "x".repeat(40)), hostileText);
const align = fc.oneof(
  fc.constant("epoch"),
  hostileOptions({
    at: fc.constantFrom("00:00", "23:59", "24:00", "1:00"),
    timeZone: fc.constantFrom("UTC", "Europe/Berlin", "Mars/Base", "+01:00", "__proto__"),
  }),
);

type Args = fc.Arbitrary<readonly unknown[]>;
type Maker = (...args: never[]) => Limit;

const ofUnit = hostileOptions({ unit });
const makers: readonly (readonly [string, Maker, Args])[] = [
  ["leakyBucket", leakyBucket, fc.tuple(rate, hostileOptions({ burst: count, unit }))],
  ["tokenBucket", tokenBucket, fc.tuple(hostileOptions({ capacity: count, refill: rate, unit }))],
  ["slidingLog", slidingLog, fc.tuple(count, per, ofUnit)],
  ["slidingWindow", slidingWindow, fc.tuple(count, per, ofUnit)],
  ["fixedWindow", fixedWindow, fc.tuple(count, per, hostileOptions({ unit, align }))],
  [
    "budget",
    budget,
    fc.tuple(
      hostileOptions({
        unit: fc.oneof(fc.constant("usd"), unit),
        amount: fc.oneof(fc.double({ min: 1e-7, max: 1e10, noNaN: true }), count),
        per: fc.oneof(
          fc.constantFrom("day", "week", "month", "quarter", "year", "decade"),
          hostileOptions({ days: fc.oneof(fc.integer({ min: 1, max: 120 }), hostileNumber) }),
        ),
        timeZone: fc.constantFrom("UTC", "Europe/Berlin", "Mars/Base", "__proto__"),
        weekStart: fc.constantFrom("monday", "sunday", "friday"),
        carryOver: fc.oneof(fc.boolean(), hostileOptions({ max: count })),
        warnAt: fc.oneof(fc.constant([0.5, 0.8]), fc.array(hostileNumber), hostileValue),
        onSpent: fc.constantFrom("refuse", "wait", "sleep"),
        reserveMs: hostileNumber,
        httpStatus: fc.constantFrom(402, 429, 200),
      }),
    ),
  ],
  ["concurrency", concurrency, fc.tuple(count, hostileOptions({ leaseMs: hostileNumber }))],
  [
    "concurrency that adapts",
    concurrency,
    fc.tuple(
      fc.constant("auto"),
      hostileOptions({
        target: fc.constantFrom("latency", "errors"),
        min: count,
        max: count,
        initial: count,
        tolerance: hostileNumber,
        shadow: fc.boolean(),
        leaseMs: hostileNumber,
      }),
    ),
  ],
];

let buckets = 0;

/** Whether a bucket of these limits answers as it should. */
async function assertUsable(limits: readonly Limit[]): Promise<void> {
  buckets += 1;
  const bucket = sluice.bucket(`b${buckets}`, { limits });
  const { allowed, remaining, slot } = await bucket.tryDraw();
  // Each limit lets at least one call pass at first.
  expect(allowed).toBe(true);
  expect(Number.isSafeInteger(remaining)).toBe(true);
  slot?.release();
}

describe("a limit maker makes a limit that holds, or says what is wrong:", () => {
  it.each(makers)("%s", async (_name, make, any) => {
    await forAll(400, any, async (args) => {
      const made = await outcomeOf(() => Reflect.apply(make, undefined, args));
      if (!made.worked) return;
      const { count: units, periodUs, capacity } = made.value;
      for (const number of [units, periodUs, capacity]) {
        expect(Number.isSafeInteger(number) && number > 0).toBe(true);
      }
      await assertUsable([made.value]);
    });
  });

  it("contract", async () => {
    const options = hostileOptions({ jitterMs: count, burst: count, window: hostileText });
    await forAll(400, fc.tuple(count, per, options), async ([max, each, given]) => {
      const made = await outcomeOf(() => contract(max as number, each as string, given));
      if (made.worked)
        await assertUsable([leakyBucket(made.value.rate, { burst: made.value.burst })]);
    });
  });
});

it("takes no limit that was made by hand and could never work", async () => {
  const byHand = hostileOptions({
    kind: fc.constantFrom(
      "leaky-bucket",
      "token-bucket",
      "sliding-log",
      "fixed-window",
      "concurrency",
      "adaptive-concurrency",
    ),
    unit,
    count,
    periodUs: count,
    capacity: count,
    align,
    resets: fc.array(hostileNumber),
  });
  await forAll(400, fc.tuple(byHand, fc.boolean()), async ([given, isComplete]) => {
    buckets += 1;
    const name = `b${buckets}`;
    const made = await outcomeOf(() => {
      const limit: Limit = isComplete ? { ...leakyBucket("5/s"), ...(given as object) } : given;
      return sluice.bucket(name, { limits: [limit] });
    });
    if (made.worked) await outcomeOf(() => made.value.tryDraw());
  });
});

import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  concurrency,
  createSluice,
  leakyBucket,
  throttled,
  throttledClient,
  type Bucket,
  type Sluice,
  type Slot,
} from "sluice";
import {
  hostileJson,
  hostileName,
  hostileNumber,
  hostileOptions,
  hostileText,
  hostileValue,
} from "./support/hostile.ts";
import { forAll, outcomeOf, SILENT } from "./support/outcomes.ts";

let sluice: Sluice;
beforeEach(() => {
  sluice = createSluice({ logger: SILENT });
  buckets = 0;
});
afterEach(() => sluice.close());
let buckets = 0;

/** One that nothing was drawn from: a cost that was settled may have booked another for a year. */
function freshBucket(): Bucket {
  buckets += 1;
  return sluice.bucket(`b${buckets}`, {
    limits: [
      leakyBucket("1000000/s", { burst: 1_000 }),
      leakyBucket("1000000/s", { burst: 1_000, unit: "tokens" }),
      concurrency(1_000),
    ],
    perKey: (key) => ({ rate: key.length > 5 ? "1000000/s" : "999999/s", burst: 500 }),
  });
}

const amount = fc.oneof(fc.integer({ min: 1, max: 600 }), hostileNumber, hostileValue);
const cost = fc.oneof(
  amount,
  hostileOptions({ calls: amount, tokens: amount, constructor: amount }),
);
const path = fc.oneof(hostileName, fc.array(fc.oneof(hostileName, hostileValue), { maxLength: 4 }));
const keys = fc.oneof(fc.dictionary(hostileName, hostileName, { maxKeys: 4 }), hostileValue);
const trying = { key: path, keys, cost };
const drawing = {
  ...trying,
  priority: fc.oneof(fc.constantFrom("low", "critical"), hostileText),
  maxWaitMs: fc.oneof(fc.integer({ min: 1, max: 5_000 }), hostileNumber),
  signal: fc.constantFrom(new AbortController().signal, undefined),
};
const calling = {
  ...drawing,
  key: fc.oneof(path, fc.func(hostileValue)),
  keys: fc.oneof(keys, fc.func(hostileValue)),
  cost: fc.oneof(cost, fc.func(cost)),
  concurrency: fc.oneof(fc.nat(), hostileNumber),
  feedback: fc.oneof(fc.constant(false), fc.func(hostileValue)),
  settle: fc.func(hostileJson),
};

function assertSlot({ bucket: name, atMs, waitedMs, generation, signal }: Slot): void {
  expect(name).toMatch(/^b\d+$/);
  expect([atMs, waitedMs, generation].every(Number.isFinite)).toBe(true);
  expect(signal.aborted).toBe(false);
}

describe("a call works, or is refused with the reason:", () => {
  it("tryDraw", async () => {
    await forAll(600, hostileOptions(trying), async (options) => {
      const bucket = freshBucket();
      const tried = await outcomeOf(() => bucket.tryDraw(options));
      if (!tried.worked) return;
      const { slot, limits } = tried.value;
      if (slot !== undefined) assertSlot(slot);
      for (const { remaining, capacity } of limits) {
        expect(Number.isSafeInteger(remaining) && remaining <= capacity).toBe(true);
      }
      slot?.release();
    });
  });

  it("draw and settle", async () => {
    const given = fc.tuple(hostileOptions(drawing), fc.oneof(cost, hostileValue));
    await forAll(500, given, async ([options, came]) => {
      const bucket = freshBucket();
      const drawn = await outcomeOf(() => bucket.draw(options));
      if (!drawn.worked) return;
      assertSlot(drawn.value);
      await outcomeOf(() => drawn.value.settle(came as never));
      drawn.value.release();
    });
  });

  it("throttled, and with", async () => {
    const given = fc.tuple(hostileOptions(calling), hostileOptions(drawing), hostileJson);
    await forAll(500, given, async ([options, more, argument]) => {
      const made = await outcomeOf(() => freshBucket().throttled((same: unknown) => same, options));
      if (!made.worked) return;
      const called = await outcomeOf(() => made.value(argument));
      if (called.worked) expect(called.value).toBe(argument);
      const other = await outcomeOf(() => made.value.with(more));
      if (other.worked) await outcomeOf(() => other.value(argument));
    });
  });

  it("throttled without a sluice of one's own", async () => {
    const options = hostileOptions({
      bucket: hostileName,
      rate: fc.constantFrom("100000/s", "1/0s"),
      ...calling,
    });
    await forAll(300, fc.tuple(options, hostileValue), async ([given, fn]) => {
      await outcomeOf(() => throttled(fn as () => unknown, given));
    });
  });

  it("throttledClient", async () => {
    const path = fc.oneof(
      fc.constantFrom("charges.create", "charges.*", "*", "__proto__.polluted", "constructor.a"),
      hostileText,
    );
    const options = hostileOptions({ ...calling, methods: fc.array(path, { maxLength: 3 }) });
    const own = { charges: { create: (same: unknown) => same } };
    const client = fc.oneof({ weight: 3, arbitrary: fc.constant(own) }, hostileValue);
    await forAll(500, fc.tuple(client, options, hostileName), async ([of, given, name]) => {
      const made = await outcomeOf(() => throttledClient(of as object, freshBucket(), given));
      if (!made.worked || of !== own) return;
      const paced = made.value as typeof own & Record<string, unknown>;
      // The language's own names lead to what they always do.
      expect(paced["__proto__"]).toBe(Object.prototype);
      expect(typeof paced[name]).toBe(typeof (own as Record<string, unknown>)[name]);
      const called = await outcomeOf(async () => paced.charges.create(7));
      if (called.worked) expect(called.value).toBe(7);
    });
  });
});

import { expect, it, vi } from "vitest";
import { concurrency } from "../../../src/core/limit-makers.ts";
import { createMemoryStore } from "../../../src/memory/memory-store.ts";
import type { BucketOptions } from "../../../src/throttle/bucket-options.ts";
import { fakeTimers } from "../../support/fake-timers.ts";
import { createTestBucket } from "../../support/test-bucket.ts";

const advance = fakeTimers();
const KEYS = Array.from({ length: 30 }, (_, number) => `key ${number}`);

/** A bucket in which one call of each key has its slot, and another waits; whom the store is asked for from now on. */
async function openHeldBack(options: BucketOptions) {
  const store = createMemoryStore();
  const draw = vi.spyOn(store, "draw");
  const { bucket } = createTestBucket(options, { store });
  const running = Promise.all(KEYS.map((key) => bucket.draw({ key })));
  await advance(200);
  const slots = await running;
  let left = 0;
  for (const key of KEYS) {
    bucket.draw({ key }).then(
      () => (left += 1),
      () => undefined,
    );
  }
  await advance(20);
  draw.mockClear();
  const asked = (): (string | undefined)[] =>
    draw.mock.calls.flatMap(([{ wishes }]) => wishes.map(({ key }) => key));
  return { bucket, slots, asked, left: () => left };
}

it("a lease of one key that comes free has that key asked for at once, and no other", async () => {
  const { bucket, slots, asked, left } = await openHeldBack({ perKey: { concurrency: 1 } });

  slots[7]!.release();
  await advance(5);

  expect(asked()).toEqual(["key 7"]);
  expect(left()).toBe(1);
  await Promise.all([bucket.close(), advance(100)]);
});

it("a lease of all keys together that comes free has none asked for that its own limits hold back", async () => {
  const limits = [concurrency(KEYS.length + 1)];
  const { bucket, slots, asked } = await openHeldBack({ limits, perKey: { rate: "1/h" } });
  const other = await bucket.draw({ key: "another" });
  const waiting = bucket.draw({ key: "free" });
  await advance(20);
  const before = asked().length;

  other.release();
  await advance(5);
  (await waiting).release();

  expect(asked().slice(before)).toEqual(["free"]);
  for (const slot of slots) slot.release();
  await Promise.all([bucket.close(), advance(100)]);
});

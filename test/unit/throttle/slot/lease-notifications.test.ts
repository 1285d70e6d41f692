import { expect, it, vi } from "vitest";
import { concurrency } from "../../../../src/core/policy/limit-makers.ts";
import type { Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../../src/throttle/bucket/bucket-options.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { createFarStore } from "../../../support/draws/far-store.ts";
import { simulateLatency } from "../../../support/servers/simulate-latency.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

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
    draw.mock.calls.flatMap(([{ slotRequests }]) =>
      slotRequests.map(({ scopes }) => scopes[0]?.key),
    );
  return { bucket, slots, asked, left: () => left };
}

it("a lease that becomes free makes its key draw immediately, and no other key", async () => {
  const { bucket, slots, asked, left } = await openHeldBack({ perKey: { concurrency: 1 } });

  slots[7]!.release();
  await advance(5);

  expect(asked()).toEqual(["key 7"]);
  expect(left()).toBe(1);
  await Promise.all([bucket.close(), advance(100)]);
});

it("a shared lease that becomes free makes no key draw that its own limits block", async () => {
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

it("a lease that becomes free is drawn before other keys check for theirs", async () => {
  const store = createFarStore({ thereMs: 10, backMs: 10 });
  const { bucket } = createTestBucket({ perKey: { concurrency: 1 } }, { store });
  // A script serves twelve keys: to look in for all of them takes 50 round trips, a second.
  const keys = Array.from({ length: 600 }, (_, number) => `key ${number}`);
  const running = Promise.all(keys.map((key) => bucket.draw({ key })));
  await advance(2_000);
  const slots = await running;
  const gone: number[] = [];
  for (const [index, key] of keys.entries()) {
    bucket.draw({ key }).then(
      () => gone.push(index),
      () => undefined,
    );
  }
  await advance(3_000);

  for (const index of [100, 300, 500]) slots[index]!.release();
  await advance(60);

  expect(gone.toSorted((a, b) => a - b)).toEqual([100, 300, 500]);
  await Promise.all([bucket.close(), advance(2_000)]);
});

it.each([
  ["of a key", { perKey: { concurrency: 1 } }],
  ["of all", { concurrency: 1 }],
])(
  "a lease %s that comes free while it is asked for is asked for again at once",
  async (_whose, policy) => {
    const store = createMemoryStore();
    const { bucket } = createTestBucket(policy, { store });
    const first = await bucket.draw({ key: "acme" });
    const draw = vi.spyOn(store, "draw");
    draw.mockImplementationOnce(async (request) => {
      const reply = await draw(request);
      // The message comes before the reply does.
      first.release();
      await simulateLatency(5);
      return reply;
    });

    let hasGone = false;
    void bucket.draw({ key: "acme" }).then(() => (hasGone = true));
    await advance(20);

    expect(hasGone).toBe(true);
    await bucket.close();
  },
);

it("a lease offered to a call whose key was just paused is passed on immediately", async () => {
  const store = createMemoryStore();
  const policy = { concurrency: 1, perKey: { rate: "100/s" } } as const;
  // It has not heard of the pause yet as it is offered the lease.
  const deaf: Store = {
    ...store,
    listen: (replica, hear) =>
      store.listen(replica, (...told) => {
        if (told[1] === "lease") hear(...told);
      }),
  };
  const [holder, first, second] = [store, deaf, store].map(
    (each) => createTestBucket(policy, { store: each }).bucket,
  );
  const held = await holder!.draw({ key: "held" });
  void first!.draw({ key: "shut" }).catch(() => undefined);
  await advance(20);
  let hasGone = false;
  void second!.draw({ key: "open" }).then(() => (hasGone = true));
  await advance(20);

  await holder!.pause({ key: "shut", forMs: 60_000 });
  held.release();
  await advance(20);

  expect(hasGone).toBe(true);
  await Promise.all([holder!.close(), first!.close(), second!.close(), advance(100)]);
});

it.each([
  { keys: 50, every: 500 },
  { keys: 1_000, every: 1_000 },
])(
  "leases of $keys keys that do not come free are checked every $every ms",
  async ({ keys, every }) => {
    const store = createMemoryStore();
    const draw = vi.spyOn(store, "draw");
    const { bucket } = createTestBucket({ perKey: { concurrency: 1 } }, { store });
    const names = Array.from({ length: keys }, (_, number) => `key ${number}`);
    for (const key of [...names, ...names]) bucket.draw({ key }).catch(() => undefined);
    // The first answers come when few keys are known to be held back yet.
    await advance(1_500);
    draw.mockClear();

    await advance(4 * every);

    const asked = draw.mock.calls.reduce((sum, [{ slotRequests }]) => sum + slotRequests.length, 0);
    expect(asked / keys).toBeGreaterThan(3);
    expect(asked / keys).toBeLessThan(6);
    await Promise.all([bucket.close(), advance(100)]);
  },
);

it("leases of keys that were asked for one after the other are looked in for together", async () => {
  const store = createMemoryStore();
  const draw = vi.spyOn(store, "draw");
  const { bucket } = createTestBucket({ perKey: { concurrency: 1 } }, { store });
  for (let number = 0; number < 480; number++) {
    for (const key of [`key ${number}`, `key ${number}`]) bucket.draw({ key }).catch(() => {});
    await advance(1);
  }
  draw.mockClear();

  await advance(2_000);

  // Twelve a script, and one more for each twentieth of a second.
  expect(draw.mock.calls.length).toBeLessThanOrEqual(4 * (480 / 12) + 40);
  await Promise.all([bucket.close(), advance(100)]);
});

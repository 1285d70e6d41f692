import { expect, it } from "vitest";
import type { BucketOptions } from "../../../../../src/throttle/bucket/bucket-options.ts";
import { fakeTimers } from "../../../../support/async/fake-timers.ts";
import { createFarStore } from "../../../../support/draws/far-store.ts";
import { createTestBucket } from "../../../../support/draws/test-bucket.ts";

const advance = fakeTimers();
const KEYS = Array.from({ length: 1_000 }, (_, number) => `key ${number}`);
/** A script serves twelve keys, and takes 20 ms on its way: 84 of them ask for all keys once. */
const ROUND_MS = 84 * 20;

/** A bucket in which callers of each key wait for more than its limits give; they never end. */
async function openBusy(options: BucketOptions, callersOfEach: number) {
  const store = createFarStore({ thereMs: 10, backMs: 10 });
  const { bucket } = createTestBucket(options, { store });
  for (let caller = 0; caller < callersOfEach; caller++) {
    for (const key of KEYS) bucket.draw({ key }).catch(() => undefined);
  }
  await advance(5_000);
  return bucket;
}

it.each<[string, BucketOptions, number]>([
  ["by a rate of their own", { perKey: { rate: "1/s" } }, 30],
  ["by leases that nobody gives back", { perKey: { concurrency: 1 } }, 2],
])(
  "a key that is free waits for one round of a thousand that are held back %s",
  async (_how, options, callersOfEach) => {
    const bucket = await openBusy(options, callersOfEach);
    let hasGone = false;

    void bucket.draw({ key: "free" }).then(() => (hasGone = true));
    await advance(2 * ROUND_MS);

    expect(hasGone).toBe(true);
    await Promise.all([bucket.close(), advance(ROUND_MS)]);
  },
);

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { concurrency, leakyBucket } from "../../../../src/core/policy/limit-makers.ts";
import { takeJobSlot, runWithJobSlot } from "../../../../src/throttle/slot/slot.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

/** Whether a call leaves on the slot that its handler was started by, so much later. */
async function isTaken(
  call: { readonly key?: string; readonly cost?: number },
  { afterMs = 0, key }: { readonly afterMs?: number; readonly key?: string } = {},
): Promise<boolean> {
  const { bucket } = createTestBucket({ rate: "100/s" });
  const slot = await bucket.draw({ key });
  return runWithJobSlot({ bucket, slot }, () => {
    vi.advanceTimersByTime(afterMs);
    return takeJobSlot(bucket, call) === slot;
  });
}

it.each([
  ["within one horizon", {}, { afterMs: 99 }, true],
  ["later than that", {}, { afterMs: 100 }, false],
  ["of the slot's key", { key: "a" }, { key: "a" }, true],
  ["of another key", { key: "b" }, { key: "a" }, false],
  ["of no key", {}, { key: "a" }, true],
  ["that costs more", { cost: 2 }, {}, false],
] as const)("a call %s takes the slot in hand or leaves it", async (_which, call, slot, taken) => {
  expect(await isTaken(call, slot)).toBe(taken);
});

it("a call that leaves the slot in hand does not wait for the lease that its own handler holds", async () => {
  const { bucket } = createTestBucket({
    limits: [leakyBucket("100/s", { burst: 2 }), concurrency(1)],
  });
  const slot = await bucket.draw();

  const drawn = runWithJobSlot({ bucket, slot }, () => bucket.draw({ cost: 2 }));
  await vi.advanceTimersByTimeAsync(1_000);

  expect((await drawn).hasLease).toBe(true);
  expect(slot.hasLease).toBe(false);
  (await drawn).release();
  await bucket.close();
});

it("a slot whose lease went back for one call is not taken by the next", async () => {
  const { bucket } = createTestBucket({ rate: "100/s", concurrency: 1 });
  const slot = await bucket.draw();

  const taken = runWithJobSlot({ bucket, slot }, () => [
    takeJobSlot(bucket, { key: "other" }),
    takeJobSlot(bucket, {}),
  ]);

  expect(taken).toEqual([undefined, undefined]);
  await bucket.close();
});

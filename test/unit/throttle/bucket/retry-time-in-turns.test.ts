import { expect, it, vi } from "vitest";
import { WaitTooLongError } from "../../../../src/core/errors.ts";
import type { OwnedBucket } from "../../../../src/throttle/bucket.ts";
import { fakeTimers } from "../../../support/async/fake-timers.ts";
import { rejectionOf } from "../../../support/async/rejection.ts";
import { createTestBucket } from "../../../support/draws/test-bucket.ts";

fakeTimers();

/** Lets 500 calls of one key and 10 of another wait at 100 calls a second. */
async function openBusy(fair: boolean): Promise<OwnedBucket> {
  const { bucket } = createTestBucket({ rate: "100/s", fair });
  for (let call = 0; call < 510; call++) {
    bucket.draw({ key: call < 500 ? "large" : "small" }).catch(() => undefined);
  }
  await vi.advanceTimersByTimeAsync(200);
  return bucket;
}

async function retryMsOf(bucket: OwnedBucket, key: string): Promise<number> {
  const rejection = rejectionOf(bucket.draw({ key, maxWaitMs: 1 }));
  await vi.advanceTimersByTimeAsync(5);
  const error = await rejection;
  return (error as WaitTooLongError).retryAfterMs;
}

it("a call that waited too long may be retried after the turns of its key", async () => {
  const bucket = await openBusy(true);

  // Each of the three keys has one turn.
  expect(await retryMsOf(bucket, "new")).toBeLessThan(200);
  // The large key goes on for long after the others have no calls left.
  expect(await retryMsOf(bucket, "large")).toBeGreaterThan(4_000);
  await bucket.close();
});

it("a call that waited too long may be retried after all calls before it, without turns", async () => {
  const bucket = await openBusy(false);

  expect(await retryMsOf(bucket, "new")).toBeGreaterThan(4_000);
  await bucket.close();
});

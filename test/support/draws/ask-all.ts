import type { Bucket, Queue } from "sluice";
import { expect } from "vitest";

/** Asks a bucket and a queue for all kinds of things while Redis is of no use; the errors that come of it. */
export async function refusalsOf(bucket: Bucket, queue: Queue<number>): Promise<readonly Error[]> {
  const asked = [bucket.draw(), bucket.tryDraw(), bucket.peek(), queue.enqueue(1), queue.counts()];
  const outcomes = await Promise.allSettled(asked);
  const reasons = outcomes.map((outcome) => (outcome as PromiseRejectedResult).reason as Error);
  for (const reason of reasons) expect(reason).toMatchObject({ code: "ERR_STORE_UNAVAILABLE" });
  return reasons;
}

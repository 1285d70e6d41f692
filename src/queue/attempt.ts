import type { Logger } from "../core/logger.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { withSlotInHand } from "../throttle/slot-in-hand.ts";
import type { Slot } from "../throttle/slot.ts";
import type { Handler, OwnedJobContext } from "./handler.ts";
import type { Job, Stored } from "./job.ts";
import { asFailure, isStorable } from "./outcome.ts";

/** What all attempts of one worker have in common. */
export interface AttemptParts<Data, Result> {
  readonly queue: string;
  readonly bucket: OwnedBucket;
  readonly handler: Handler<Data, Result>;
  readonly logger: Logger;
}

/** One try at a job that has its slot. */
export interface Attempt<Data> {
  readonly stored: Stored<Data>;
  readonly job: Job<Data>;
  readonly context: OwnedJobContext;
  readonly slot: Slot;
}

/** Runs the handler of a job, and says to BullMQ, by return or throw, what came of it. */
export async function runAttempt<Data, Result>(
  { queue, bucket, handler, logger }: AttemptParts<Data, Result>,
  { job, context, slot }: Attempt<Data>,
): Promise<Result | undefined> {
  const run = async (): Promise<Result> => handler(job, context);
  // Another call may take its place in the bucket then.
  if (slot.hasLease) {
    slot.signal.addEventListener("abort", () => context.abort("the lease of the call was lost"));
  }
  let result: Result;
  try {
    // Async storage slows every promise of a process down, so it is used only where it can matter.
    const inHand = { bucket, slot };
    result = await (bucket.isCalledByHand ? withSlotInHand(inHand, run) : run());
  } catch (thrown) {
    bucket.hear(thrown, slot, { key: job.key });
    throw asFailure(thrown);
  } finally {
    slot.release();
  }
  bucket.hear(result, slot, { key: job.key });
  if (isStorable(result)) return result;
  logger.warn({ queue, job: job.id }, "A handler's result is no JSON and is not kept.");
  return undefined;
}

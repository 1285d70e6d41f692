import { HandlerTimeoutError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { OwnedBucket } from "../throttle/bucket.ts";
import { withSlotInHand } from "../throttle/slot-in-hand.ts";
import type { Slot } from "../throttle/slot.ts";
import { setRetryDelay } from "./backoff.ts";
import type { Handler, OwnedJobContext } from "./handler.ts";
import type { Job, Stored } from "./job.ts";
import { asFailure, invalidFailure, isDiscard, isRetryAfter, isStorable } from "./outcome.ts";
import { check, type Schema } from "./schema.ts";

/** What all attempts of one worker have in common. */
export interface AttemptParts<Data, Result> {
  readonly queue: string;
  readonly bucket: OwnedBucket;
  readonly handler: Handler<Data, Result>;
  readonly schema?: Schema<Data> | undefined;
  /** How long a handler may take, in ms; undefined is without end. */
  readonly timeoutMs?: number | undefined;
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
  parts: AttemptParts<Data, Result>,
  attempt: Attempt<Data>,
): Promise<Result | undefined> {
  const { queue, bucket, logger } = parts;
  const { stored, job, context, slot } = attempt;
  const { key, cost } = job;
  context.begin(stored, slot);
  // Another call may take its place in the bucket then.
  if (slot.hasLease) {
    slot.signal.addEventListener("abort", () => context.abort("the lease of the call was lost"));
  }
  let result: Result;
  try {
    result = await run(parts, attempt);
    if (isRetryAfter(result) || isDiscard(result)) throw result;
  } catch (thrown) {
    const askedMs = bucket.hear(thrown, slot, { key, cost });
    setRetryDelay(stored, thrown, askedMs);
    throw asFailure(thrown);
  } finally {
    slot.release();
  }
  bucket.hear(result, slot, { key, cost });
  if (isStorable(result)) return result;
  logger.warn(
    { queue, job: job.id },
    "A handler's result is no JSON, or too long, and is not kept.",
  );
  return undefined;
}

async function run<Data, Result>(
  { bucket, handler, schema, timeoutMs }: AttemptParts<Data, Result>,
  { job: read, context, slot }: Attempt<Data>,
): Promise<Result> {
  const job = schema === undefined ? read : { ...read, data: await checked(schema, read.data) };
  const handle = async (): Promise<Result> => handler(job, context);
  // Async storage slows every promise of a process down, so it is used only where it can matter.
  const running = bucket.isCalledByHand ? withSlotInHand({ bucket, slot }, handle) : handle();
  return timeoutMs === undefined ? running : inTime(running, timeoutMs, context);
}

async function checked<Data>(schema: Schema<Data>, data: unknown): Promise<Data> {
  const found = await check(schema, data);
  if (found.isValid) return found.value;
  const where = found.path === "" ? "the data" : `data.${found.path}`;
  throw invalidFailure(`${where} is refused by the queue's schema: ${found.message}`);
}

/** A handler cannot be stopped, but it can be told; what it comes to later is nobody's. */
async function inTime<Result>(
  running: Promise<Result>,
  timeoutMs: number,
  context: OwnedJobContext,
): Promise<Result> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      const reason = new HandlerTimeoutError(timeoutMs);
      reject(reason);
      context.abort(reason);
    }, timeoutMs);
  });
  try {
    return await Promise.race([running, late]);
  } finally {
    clearTimeout(timer);
  }
}

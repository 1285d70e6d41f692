import pTimeout from "p-timeout";
import type { Logger } from "../../core/logger.ts";
import type { OwnedBucket } from "../../throttle/bucket.ts";
import { withSlotInHand, type Slot } from "../../throttle/slot/slot.ts";
import { check, type Schema } from "../enqueue/data.ts";
import { HandlerTimeoutError } from "../errors.ts";
import type { Job, Stored } from "../job.ts";
import { DEFAULT_BASE_MS } from "../options.ts";
import type { Handler, HandlerResult, OwnedJobContext } from "./context.ts";
import { asFailure, invalidFailure, isDiscard, isRetryAfter, isStorable } from "./outcome.ts";

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
  const { queue, bucket, schema, logger } = parts;
  const { stored, job, context, slot } = attempt;
  const { cost } = job;
  context.begin(stored, slot);
  if (slot.hasLease) tellOfLoss(slot, context);
  let result: HandlerResult<Result>;
  try {
    const checked = schema === undefined ? job : await withCheckedData(schema, job);
    result = await run(parts, attempt, checked);
    if (isRetryAfter(result) || isDiscard(result)) throw result;
  } catch (thrown) {
    const { askedMs } = bucket.reportOutcome(thrown, slot, cost);
    setRetryDelay(stored, thrown, askedMs);
    throw asFailure(thrown);
  } finally {
    slot.release();
  }
  bucket.reportOutcome(result, slot, cost);
  if (isStorable(result)) return result;
  logger.warn(
    { queue, job: job.id },
    "A handler's result is no JSON, or too long, and is not kept.",
  );
  return undefined;
}

/** Another call may take its place in the bucket once its lease is lost; a process that was busy may have lost it already. */
function tellOfLoss({ signal }: Slot, context: OwnedJobContext): void {
  const tell = (): void => context.abort(signal.reason);
  if (signal.aborted) tell();
  else signal.addEventListener("abort", tell, { once: true });
}

/** Not async: a handler that throws at once, throws here. */
function run<Data, Result>(
  { bucket, handler, timeoutMs }: AttemptParts<Data, Result>,
  { context, slot }: Attempt<Data>,
  job: Job<Data>,
): HandlerResult<Result> | Promise<HandlerResult<Result>> {
  // Async storage slows every promise of a process down, so it is used only where it can matter: where a handler
  // may call through its bucket, and where it would wait for a lease that it holds itself if it did.
  const running =
    bucket.isCalledByHand || slot.hasLease
      ? withSlotInHand({ bucket, slot }, () => handler(job, context))
      : handler(job, context);
  return timeoutMs === undefined ? running : inTime(running, timeoutMs, context);
}

async function withCheckedData<Data>(schema: Schema<Data>, job: Job<Data>): Promise<Job<Data>> {
  const found = await check(schema, job.data);
  if (found.isValid) return { ...job, data: found.value };
  const where = found.path === "" ? "the data" : `data.${found.path}`;
  throw invalidFailure(`${where} is refused by the queue's schema: ${found.message}`);
}

/** A handler cannot be stopped: its signal is aborted, and what it comes to later is dropped. */
function inTime<Result>(
  running: Result | Promise<Result>,
  timeoutMs: number,
  context: OwnedJobContext,
): Promise<Result> {
  return pTimeout(Promise.resolve(running), {
    milliseconds: timeoutMs,
    // Without it, p-timeout would call the `cancel` that a client's promise may have.
    fallback(): never {
      const error = new HandlerTimeoutError(timeoutMs);
      context.abort(error);
      throw error;
    },
  });
}

const DEFAULT_MAX_MS = 3_600_000;

/**
 * Says to BullMQ when to try the job at hand again: exponential backoff with full jitter
 * (Brooker, "Exponential Backoff And Jitter", 2015), but not before the downstream asked for it.
 * BullMQ's own has no bound: with a base of 1 s, try 30 would come after 17 years.
 */
export function setRetryDelay(
  { opts, attemptsMade }: Pick<Stored<unknown>, "opts" | "attemptsMade">,
  thrown: unknown,
  askedMs: number | undefined,
): void {
  const { sluice: { maxBackoffMs = DEFAULT_MAX_MS } = {}, backoff } =
    opts as Stored<unknown>["opts"];
  const baseMs = (typeof backoff === "object" && backoff.delay) || DEFAULT_BASE_MS;
  const ownMs = Math.floor(Math.random() * Math.min(maxBackoffMs, baseMs * 2 ** attemptsMade));
  const delay = isRetryAfter(thrown) ? thrown.ms : Math.max(ownMs, askedMs ?? 0);
  opts.backoff = { type: "fixed", delay: Math.ceil(delay) };
}

/**
 * Works until nothing is left that could run, then closes the workers:
 *
 *     look ──▶ a job runs, waits or is due soon ──▶ look again
 *       │
 *       └────▶ nothing, for `idleMs` ──▶ close ──▶ what happened
 *
 * Several workers are drained together, because the jobs of one queue may enqueue jobs in another.
 */
import { setTimeout as pause } from "node:timers/promises";
import { StoreUnavailableError } from "../../core/errors.ts";
import type { JobsLeft } from "../../stores/redis/scripts/queue/steering.ts";
import type { Totals } from "./report.ts";

/** What a worker did until it closed, and the jobs that it left in the queue. */
export interface Drained extends Readonly<Totals> {
  /**
   * Why the worker has closed:
   *
   * - `"empty"`: nothing is left that could run. Jobs that are due later are left.
   * - `"blocked"`: due jobs are left that cannot run, because of a pause, or behind a dead letter of an ordered key.
   * - `"closed"`: the worker was closed before.
   */
  readonly reason: "empty" | "blocked" | "closed";
  /** How many due jobs are left that cannot run: `3`. */
  readonly blocked: number;
  /** How many jobs are due later: delayed jobs, retries and the next runs of recurring jobs: `1`. */
  readonly delayed: number;
}

/** A worker that can be drained. */
export interface Drainable {
  /** The name of the worker's queue. */
  readonly queue: string;
  readonly totals: Readonly<Totals>;
  readonly isClosing: boolean;
  /** Counts the jobs that are left. Rejects if Redis sends no reply in time. */
  left(soonMs: number): Promise<JobsLeft>;
  /** Called when `left` has rejected, and is called again. */
  onMissed(error: unknown): void;
  close(): Promise<void>;
}

const LOOK_EVERY_MS = 250;

/**
 * Drains workers of one process together.
 *
 * @throws {@link StoreUnavailableError} when Redis sends no reply to the first look. The workers then keep running. Later
 * outages are waited for.
 */
export async function drain(workers: readonly Drainable[], idleMs: number): Promise<Drained> {
  const ofQueues = [...new Map(workers.map((worker) => [worker.queue, worker])).values()];
  const look = async (): Promise<JobsLeft> =>
    sumOf(await Promise.all(ofQueues.map((worker) => worker.left(idleMs))));
  function missed(error: unknown): undefined {
    ofQueues[0]?.onMissed(error);
  }
  const isClosed = (): boolean => workers.some(({ isClosing }) => isClosing);
  let left: JobsLeft | undefined = isClosed() ? NONE : await look().catch(refuse);
  let idleSinceMs: number | undefined;
  let endedBefore = -1;
  while (!isClosed()) {
    const { done, failed, retried } = totalsOf(workers);
    const ended = done + failed + retried;
    if (left?.runnable !== 0 || ended !== endedBefore) idleSinceMs = undefined;
    else idleSinceMs ??= performance.now();
    endedBefore = ended;
    const idleForMs = idleSinceMs === undefined ? 0 : performance.now() - idleSinceMs;
    if (idleForMs >= idleMs) break;
    await pause(Math.min(LOOK_EVERY_MS, Math.ceil(idleMs - idleForMs)));
    // Without a reply, a job may be left, so the wait begins again.
    left = await look().catch(missed);
  }
  const wasClosed = isClosed();
  await Promise.all(workers.map((worker) => worker.close()));
  const { blocked, delayed } = left ?? NONE;
  const reason = wasClosed ? "closed" : blocked > 0 ? "blocked" : "empty";
  return { reason, ...totalsOf(workers), blocked, delayed };
}

const NONE: JobsLeft = { runnable: 0, blocked: 0, delayed: 0 };

function sumOf(each: readonly JobsLeft[]): JobsLeft {
  return each.reduce(
    (sum, { runnable, blocked, delayed }) => ({
      runnable: sum.runnable + runnable,
      blocked: sum.blocked + blocked,
      delayed: sum.delayed + delayed,
    }),
    NONE,
  );
}

function totalsOf(workers: readonly Pick<Drainable, "totals">[]): Readonly<Totals> {
  return workers.reduce(
    (sum, { totals: { done, failed, retried } }) => ({
      done: sum.done + done,
      failed: sum.failed + failed,
      retried: sum.retried + retried,
    }),
    { done: 0, failed: 0, retried: 0 },
  );
}

function refuse(cause: unknown): never {
  const problem = "Redis did not say which jobs are left; the worker keeps running";
  throw new StoreUnavailableError(`${problem}. See that Redis runs, and drain again.`, cause);
}

import { setTimeout as pause } from "node:timers/promises";
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { Queue } from "../../queue/queue.ts";
import type { Sluice } from "../../sluice/create-sluice.ts";
import { partsOf } from "../../sluice/parts.ts";

type AnyQueue = Pick<Queue<unknown, unknown, never>, "name">;

/**
 * Moves the clock of a sluice in memory forward, in ms. Delayed jobs, retries and recurring jobs
 * become due, calls that wait for a slot draw again, and state such as a `dedupeMs` expires. The
 * clocks of this process, such as `Date.now()`, do not change.
 *
 * @throws {@link InvalidOptionError} when the sluice was not created with `redis: "memory"`, when
 * `ms` is no positive whole number, or when a handler runs: it would lose its place under limits on
 * concurrent calls.
 */
export async function advanceTime(sluice: Sluice, ms: number): Promise<void> {
  const where = "advanceTime()";
  const { advance, running } = partsOf(where, sluice);
  if (advance === undefined) {
    const remedy = 'give a sluice from createSluice({ redis: "memory" })';
    throw new InvalidOptionError({ where, option: "sluice", value: sluice, remedy });
  }
  if (!Number.isInteger(ms) || ms <= 0 || ms > LONGEST_MS) {
    const remedy = `give whole milliseconds from 1 to ${LONGEST_MS}`;
    throw new InvalidOptionError({ where, option: "ms", value: ms, remedy });
  }
  const [busy] = running();
  if (busy !== undefined) {
    const remedy = `a job of queue "${busy}" runs, and would lose its leases; call drainQueue() first`;
    throw new InvalidOptionError({ where, option: "ms", value: ms, remedy });
  }
  await advance(ms);
}

/** The jobs that a drained queue still has. */
export interface DrainedQueue {
  /** Due jobs that cannot run, because of a pause, or behind a dead letter of an ordered key. */
  readonly blocked: number;
  /** Jobs that are due later. `advanceTime` makes them due. */
  readonly delayed: number;
}

export interface DrainQueueOptions {
  /** How long the jobs may take, in ms. Defaults to 10,000. */
  readonly timeoutMs?: number | undefined;
}

const DRAIN_OPTIONS = z.strictObject({
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
});
const LOOK_EVERY_MS = 5;

/**
 * Waits until no job of a queue runs or could run now. The workers stay open. This works with any
 * Redis, and with workers in any process.
 *
 * @throws an `Error` when jobs are left after `timeoutMs`, for example because there is no
 * worker.
 * @throws {@link StoreUnavailableError} when Redis sent no reply in time.
 */
export async function drainQueue(
  sluice: Sluice,
  queue: AnyQueue,
  options: DrainQueueOptions = {},
): Promise<DrainedQueue> {
  const where = "drainQueue()";
  const { connect, timeoutMs: replyTimeoutMs } = partsOf(where, sluice);
  const { timeoutMs = 10_000 } = readOptions(where, DRAIN_OPTIONS, options);
  const { name } = queue;
  const untilMs = performance.now() + timeoutMs;
  const connection = connect(where, name);
  try {
    await connection.untilReady(replyTimeoutMs);
    for (;;) {
      const { runnable, ...left } = await connection.lanes.left({ queue: name, soonMs: 0 });
      if (runnable === 0) return left;
      if (performance.now() > untilMs) throw leftOver(name, runnable, timeoutMs);
      await pause(LOOK_EVERY_MS);
    }
  } finally {
    connection.close();
  }
}

function leftOver(queue: string, count: number, timeoutMs: number): Error {
  return new Error(
    `drainQueue(): queue "${queue}" still has ${count} jobs to run after ${timeoutMs} ms. See that a worker runs, or raise timeoutMs.`,
  );
}

/**
 * Makes the next attempts of a queue's jobs in this process fail with an error, instead of running
 * their handler. The attempts count, as if the handler had thrown. Returns a function that ends
 * this early.
 *
 * @throws {@link InvalidOptionError} when `times` is no positive whole number.
 */
export function failNext<Data, Result, Input>(
  queue: Pick<Queue<Data, Result, Input>, "use">,
  error: Error = new Error("failNext()"),
  times: number = 1,
): () => void {
  if (!Number.isInteger(times) || times < 1) {
    const remedy = "give how many attempts are to fail, such as 1";
    throw new InvalidOptionError({ where: "failNext()", option: "times", value: times, remedy });
  }
  let left = times;
  function failOr<Outcome>(run: () => Outcome): Outcome {
    if (left === 0) return run();
    left -= 1;
    if (left === 0) end();
    throw error;
  }
  const end = queue.use({
    handler: (_job, next) => failOr(next),
    batch: (_jobs, next) => failOr(next),
  });
  return end;
}

import * as z from "zod";
import { LONGEST_MS, readOptional, wholeNumber } from "../../core/input/options.ts";
import type { Cost } from "../../throttle/costs.ts";
import type { Job } from "../job.ts";

export interface WorkerOptions {
  /**
   * How many jobs this worker holds at once, waiting for slots or running. For a handler in a file, this is also the
   * number of child processes. Defaults to 50, or for a handler in a file, to the number of processors.
   */
  readonly concurrency?: number | undefined;
  /**
   * How long running handlers may continue after `close()`, unless `close()` sets a deadline. Defaults to 30,000 ms.
   */
  readonly closeDeadlineMs?: number | undefined;
  /**
   * How long a job may wait in this worker for room under the limits of its key. After that, the job goes back to the
   * queue, so that other jobs can run. Defaults to 250 ms.
   */
  readonly patienceMs?: number | undefined;
  /**
   * How long a job's lock lasts. The worker renews the lock at half of that time. If the worker dies or hangs, another
   * worker gets the job at most 1.25 × `lockMs` after the last renewal. Defaults to 30,000 ms.
   */
  readonly lockMs?: number | undefined;
  /**
   * How long a handler may take. After that, the worker aborts the handler's signal, and the attempt counts as failed.
   * For a handler in a file, the worker also kills the child process. A handler function cannot be stopped: the worker
   * ignores its later result, but frees its place and its lease at once. Until the function obeys its signal, more
   * handlers may run than the `concurrency` of the worker and of the bucket allow. Defaults to no limit.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Whether an attempt fails if its handler returns a response, such as the result of `fetch(…)`, with a status of 400
   * or more or with another form of refusal. Set this to false for handlers that inspect error responses themselves.
   * Defaults to true.
   */
  readonly failOnResponse?: boolean | undefined;
}

export interface CloseOptions {
  /** How long running handlers may continue. Defaults to the worker's `closeDeadlineMs`. */
  readonly deadlineMs?: number | undefined;
}

export interface DrainOptions {
  /**
   * How long nothing may be left that could run before the worker closes. A job that is due within this time is waited
   * for. Defaults to 5,000 ms.
   */
  readonly idleMs?: number | undefined;
}

/** How a worker combines several jobs into one call of the handler, on one slot. */
export interface BatchOptions<Data = unknown> {
  /** The most jobs in one call, from 1 to 1,000. */
  readonly size: number;
  /** How long the first job of a batch waits for more jobs before the batch draws its slot. Defaults to 100 ms. */
  readonly waitMs?: number | undefined;
  /** The cost of a batch, computed from its jobs: `(jobs) => ({ tokens: 10 * jobs.length })`. Defaults to 1 call. */
  readonly cost?: ((jobs: readonly Job<Data>[]) => Cost) | undefined;
}

/** The options of a worker whose handler gets several jobs in one call. */
export interface BatchWorkerOptions<Data = unknown> extends WorkerOptions {
  /**
   * Combines jobs into batches. With this option, `concurrency` counts batches. Each job keeps its own lock, deadline,
   * time limit and outcome. The costs of single jobs are ignored.
   */
  readonly batch: BatchOptions<Data>;
}

const TIME_OR_NONE = wholeNumber(0, LONGEST_MS, "milliseconds").optional();
const WORKER_OPTIONS = z.strictObject({
  concurrency: wholeNumber(1, 100_000, "jobs").optional(),
  closeDeadlineMs: TIME_OR_NONE,
  patienceMs: TIME_OR_NONE,
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  failOnResponse: z.boolean({ error: "give true or false" }).optional(),
  lockMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
  batch: z
    .strictObject({
      size: wholeNumber(1, 1_000, "jobs"),
      waitMs: TIME_OR_NONE,
      cost: z
        .custom<() => Cost>((value) => typeof value === "function", {
          error: "give a function of the jobs that returns a cost",
        })
        .optional(),
    })
    .optional(),
});
const CLOSE_OPTIONS = z.strictObject({ deadlineMs: TIME_OR_NONE });
const DRAIN_OPTIONS = z.strictObject({
  idleMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
});
const DEFAULT_IDLE_MS = 5_000;

export function readWorkerOptions(
  given: unknown,
): WorkerOptions & { readonly batch?: BatchOptions | undefined } {
  return readOptional("worker()", WORKER_OPTIONS, given);
}

export function readCloseOptions(given: unknown): CloseOptions {
  return readOptional("close()", CLOSE_OPTIONS, given);
}

/** @throws {@link InvalidOptionError} when `idleMs` can never work. */
export function readDrainOptions(where: string, given: unknown): { readonly idleMs: number } {
  const { idleMs = DEFAULT_IDLE_MS } = readOptional(where, DRAIN_OPTIONS, given);
  return { idleMs };
}

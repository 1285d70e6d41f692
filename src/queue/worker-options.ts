import * as z from "zod";
import { LONGEST_MS, readOptions, wholeNumber } from "../core/options.ts";

export interface WorkerOptions {
  /**
   * How many jobs this worker holds at once, waiting for their slots or running. Of a handler in a file it is
   * also the number of processes. Defaults to 50, for a file to the number of processors.
   */
  readonly concurrency?: number | undefined;
  /** How long running handlers may go on after `close()`, unless close says otherwise. Defaults to 30,000 ms. */
  readonly closeDeadlineMs?: number | undefined;
  /** How long a job waits for its own key's limits in its place here, before it makes way for others. Defaults to 250 ms. */
  readonly patienceMs?: number | undefined;
  /**
   * How long a job's lock holds, which is renewed at half of that. A job of a worker that has died or stands still
   * goes to another at most 1.25 × `lockMs` after the last time. Defaults to 30,000 ms.
   */
  readonly lockMs?: number | undefined;
  /**
   * How long a handler may take: then its signal is aborted, and the attempt counts as failed. A handler in a file
   * is ended with its process; a function cannot be stopped, and what it does afterwards counts for nothing. Its place
   * here and its lease go to others at once: until it heeds its signal, more may run than `concurrency` says, here and
   * of the bucket. Defaults to no limit.
   */
  readonly timeoutMs?: number | undefined;
}

export interface CloseOptions {
  /** How long running handlers may go on. Defaults to the worker's `closeDeadlineMs`. */
  readonly deadlineMs?: number | undefined;
}

const TIME = wholeNumber(0, LONGEST_MS, "milliseconds").optional();
const WORKER_OPTIONS = z.strictObject({
  concurrency: wholeNumber(1, 100_000, "jobs").optional(),
  closeDeadlineMs: TIME,
  patienceMs: TIME,
  timeoutMs: wholeNumber(1, LONGEST_MS, "milliseconds").optional(),
  lockMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
});
const CLOSE_OPTIONS = z.strictObject({ deadlineMs: TIME });

export function readWorkerOptions(given: unknown): WorkerOptions {
  return readOptions("worker()", WORKER_OPTIONS, given);
}

export function readCloseOptions(given: unknown): CloseOptions {
  return readOptions("close()", CLOSE_OPTIONS, given);
}

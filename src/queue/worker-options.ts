import { z } from "zod";
import { LONGEST_MS, readOptions, wholeNumber } from "../core/options.ts";

export interface WorkerOptions {
  /** How many jobs this worker holds at once, waiting for their slots or running. Defaults to 50. */
  readonly concurrency?: number | undefined;
  /** How long running handlers may go on after `close()`, unless close says otherwise. Defaults to 30,000 ms. */
  readonly closeDeadlineMs?: number | undefined;
  /** How long a job stays with a worker that has died or stands still. Defaults to 30,000 ms. */
  readonly lockMs?: number | undefined;
}

export interface CloseOptions {
  /** How long running handlers may go on. Defaults to the worker's `closeDeadlineMs`. */
  readonly deadlineMs?: number | undefined;
}

const TIME = wholeNumber(0, LONGEST_MS, "milliseconds").optional();
const WORKER_OPTIONS = z.strictObject({
  concurrency: wholeNumber(1, 100_000, "jobs").optional(),
  closeDeadlineMs: TIME,
  lockMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
});
const CLOSE_OPTIONS = z.strictObject({ deadlineMs: TIME });

export function readWorkerOptions(given: unknown): WorkerOptions {
  return readOptions("worker()", WORKER_OPTIONS, given);
}

export function readCloseOptions(given: unknown): CloseOptions {
  return readOptions("close()", CLOSE_OPTIONS, given);
}

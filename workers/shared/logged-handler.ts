import type { Logger } from "pino";
import { Discard, type Handler, type Job, type JobContext } from "sluice";
import { CallError } from "./call.ts";

export interface LoggedCall<Data, Result> {
  readonly log: Logger;
  /** The log messages after success and after failure. */
  readonly texts: { readonly done: string; readonly failed: string };
  /** Returns more facts to log about a job. They must not contain secrets. */
  readonly facts?: (data: Data) => object;
  readonly call: (job: Job<Data>, context: JobContext) => Promise<Result>;
}

/** Creates a handler that logs the outcome of each attempt, but nothing of the request. */
export function loggedHandler<Data, Result>(
  parts: LoggedCall<Data, Result>,
): Handler<Data, Result> {
  const { log, texts, facts, call } = parts;
  return async (job, context) => {
    const startMs = performance.now();
    const summary = (): object => ({
      job: job.id,
      ...facts?.(job.data),
      attempt: context.attempt,
      tookMs: Math.round(performance.now() - startMs),
    });
    try {
      const result = await call(job, context);
      log.debug(summary(), texts.done);
      return result;
    } catch (error) {
      log.warn({ ...summary(), reason: safeReason(error) }, texts.failed);
      throw error;
    }
  };
}

/**
 * Returns the reason of a failure for the log. Errors of unknown classes may contain parts of a request, so their
 * messages are not logged.
 */
function safeReason(error: unknown): string {
  if (error instanceof Discard) return `${error.reason}; the job is given up`;
  return error instanceof CallError ? error.message : "failed unexpectedly";
}

import type { Logger } from "pino";
import { Discard, type Handler, type Job, type JobContext } from "sluice";
import { CallError } from "./call.ts";

export interface LoggedCall<Data, Result> {
  readonly log: Logger;
  /** What to log after success and after failure. */
  readonly texts: { readonly done: string; readonly failed: string };
  /** What else to log about a job; it must not contain secrets. */
  readonly facts?: (data: Data) => object;
  readonly call: (job: Job<Data>, context: JobContext) => Promise<Result>;
}

/** Creates a handler that logs how each attempt went, and nothing of what was sent. */
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

/** Other errors may contain parts of a request. */
function safeReason(error: unknown): string {
  if (error instanceof Discard) return `${error.reason}; the job is given up`;
  return error instanceof CallError ? error.message : "failed unexpectedly";
}

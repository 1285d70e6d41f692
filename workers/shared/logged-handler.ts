import type { Logger } from "pino";
import { Discard, type Handler, type Job, type JobContext } from "sluice";
import { CallError } from "./call.ts";

export interface LoggedCall<Data, Result> {
  readonly log: Logger;
  /** What is logged when it went well, and when not. */
  readonly texts: { readonly done: string; readonly failed: string };
  /** What else of a job is logged; it must not be a secret. */
  readonly facts?: (data: Data) => object;
  readonly call: (job: Job<Data>, context: JobContext) => Promise<Result>;
}

/** A handler that logs how each attempt went, and nothing of what was sent. */
export function loggedHandler<Data, Result>(
  parts: LoggedCall<Data, Result>,
): Handler<Data, Result> {
  const { log, texts, facts, call } = parts;
  return async (job, context) => {
    const startMs = performance.now();
    const told = (): object => ({
      job: job.id,
      ...facts?.(job.data),
      attempt: context.attempt,
      tookMs: Math.round(performance.now() - startMs),
    });
    try {
      const result = await call(job, context);
      log.debug(told(), texts.done);
      return result;
    } catch (error) {
      log.warn({ ...told(), reason: safeReason(error) }, texts.failed);
      throw error;
    }
  };
}

/** What others throw may hold parts of a request. */
function safeReason(error: unknown): string {
  if (error instanceof Discard) return `${error.reason}; it is given up`;
  return error instanceof CallError ? error.message : "failed unexpectedly";
}

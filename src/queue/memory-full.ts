import { StoreUnavailableError } from "../core/errors.ts";

/** What a producer is told when Redis refused its jobs for want of memory; any other error as it is. */
export function tellWhenFull(error: unknown, jobs: number): unknown {
  if (!(error instanceof StoreUnavailableError)) return error;
  const { cause } = error;
  if (!(cause instanceof Error) || !/\bOOM /.test(cause.message)) return error;
  // Each job is stored by a script of its own, and Redis runs a script as a whole or not at all.
  const mayBeStored = jobs > 1;
  const outcome = mayBeStored ? "some of the jobs may be stored" : "nothing was stored";
  const remedy = "Give it more (maxmemory), or let workers drain its queues, and try again.";
  return new StoreUnavailableError(`The memory of Redis is full; ${outcome}. ${remedy}`, cause, {
    mayBeStored,
  });
}

/**
 * What each of a worker's tokens was last used for, so that a job can be found whose fetch was answered, but whose answer
 * was lost with the connection. ioredis sends the command again, which then fetches another job, or finds that the job to
 * end has ended; the first one would lie there until its lock ends. No upstream issue known; checked with bullmq 6.7.0.
 */
import type { createRedisBackend } from "bullmq";
import { codeOf } from "./errors.ts";

type Backend = ReturnType<typeof createRedisBackend>;
/** BullMQ's answer with the next job: its data, its id, and more. */
type NextJob = readonly unknown[] | void | undefined;

export interface Fetches {
  /** Whether an answer is outstanding: one may have been lost with a connection. */
  readonly isUnderWay: boolean;
  /** Whether a token holds a job that no answer has brought. */
  isLost(id: string, token: string): boolean;
  /** Watches what this backend fetches, ends and gives back. */
  watch(backend: Backend): void;
}

export function createFetches(): Fetches {
  /** By token: the id of the job that it was used for, or undefined while it fetches one. */
  const held = new Map<string, string | undefined>();
  let underWay = 0;

  function note(token: string, next: NextJob): void {
    const [job, id] = next ?? [];
    if (job) held.set(token, id as string);
    else held.delete(token);
  }

  /** Watches a command that uses a token; `nextOf` finds the next job in its answer. Not async: every job passes here. */
  function use<Answer>(
    token: string,
    asking: Promise<Answer>,
    nextOf: (answer: Answer) => NextJob,
  ): Promise<Answer> {
    underWay += 1;
    return asking.then(
      (answer) => {
        underWay -= 1;
        note(token, nextOf(answer));
        return answer;
      },
      (error: unknown) => {
        underWay -= 1;
        // Refused for good. After other errors BullMQ asks again, and the job is still in hand.
        if (codeOf(error) !== undefined) held.delete(token);
        throw error;
      },
    );
  }

  return {
    get isUnderWay() {
      return underWay > 0;
    },
    isLost(id, token) {
      const current = held.get(token);
      return held.has(token) ? current !== undefined && current !== id : true;
    },
    watch(backend) {
      const fetch = backend.moveToActive.bind(backend);
      const complete = backend.moveToCompleted.bind(backend);
      const fail = backend.moveToFailed.bind(backend);
      const delay = backend.moveToDelayed.bind(backend);
      const retry = backend.retryJob.bind(backend);
      const putBack = backend.moveJobFromActiveToWait.bind(backend);
      backend.moveToActive = (token, ...rest) => {
        held.set(token, undefined);
        return use(token, fetch(token, ...rest), (next) => next);
      };
      backend.moveToCompleted = (job, result, kept, token, ...rest) =>
        use(token, complete(job, result, kept, token, ...rest), (answer) => answer.result);
      backend.moveToFailed = (job, reason, kept, token, ...rest) =>
        use(token, fail(job, reason, kept, token, ...rest), (answer) => answer.result);
      backend.moveToDelayed = (id, atMs, delayMs, token = "", ...rest) =>
        use(token, delay(id, atMs, delayMs, token, ...rest), (next) => next);
      backend.retryJob = (id, isLast, token = "", ...rest) =>
        use(token, retry(id, isLast, token, ...rest), () => undefined);
      backend.moveJobFromActiveToWait = (id, token = "") =>
        use(token, putBack(id, token), () => undefined);
    },
  };
}

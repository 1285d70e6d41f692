import { wordsOf } from "../core/describe.ts";
import { ClosedError, redisRefusalOf, SluiceError, StoreUnavailableError } from "../core/errors.ts";

/** Runs a request to Redis within the sluice's time limit. */
export type Ask = <Answer>(question: () => Promise<Answer>) => Promise<Answer>;

/** The connection that requests go through. */
export interface AskedConnection {
  untilReady(timeoutMs: number): Promise<void>;
  inTime<Answer>(timeoutMs: number, question: Promise<Answer>): Promise<Answer>;
}

/**
 * Rejects with {@link StoreUnavailableError} when Redis is unreachable, and with {@link
 * ClosedError} once `isClosed` returns true.
 */
export function createAsk(
  connection: AskedConnection,
  { timeoutMs, isClosed, what }: { timeoutMs: number; isClosed: () => boolean; what: string },
): Ask {
  return async (question) => {
    if (isClosed()) throw new ClosedError(what);
    try {
      await connection.untilReady(timeoutMs);
      return await connection.inTime(timeoutMs, question());
    } catch (cause) {
      if (isClosed()) throw new ClosedError(what);
      if (cause instanceof SluiceError) throw cause;
      const refusal = redisRefusalOf(cause);
      const met = cause instanceof Error ? ` (${wordsOf(cause)})` : "";
      const problem =
        refusal === undefined
          ? `Redis gave no answer within ${timeoutMs} ms${met}; it may or may not have done what it was asked`
          : `Redis refused it: ${refusal.reason}`;
      const remedy = refusal?.remedy ?? "See that Redis runs, and try again";
      throw new StoreUnavailableError(`${problem}. ${remedy}.`, cause);
    }
  };
}

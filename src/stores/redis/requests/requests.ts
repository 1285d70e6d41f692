/**
 * Sends requests to the store's Redis, and handles missing replies.
 *
 * Each request has a time limit. Within the time limit, `send` repeats a lost or refused attempt.
 * `sendOnce` never repeats, for requests whose repetition could do harm. While the server's breaker
 * (`breaker.ts`) is open, requests fail immediately.
 */

import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { messageOf } from "../../../core/describe.ts";
import {
  ClosedError,
  isReply,
  redisRefusalOf,
  SluiceError,
  StoreUnavailableError,
} from "../../../core/errors.ts";
import type { Breakers, ServerBreaker } from "./breaker.ts";
import { lastErrorOf, untilReady } from "../ioredis/readiness.ts";
import { withTimeout } from "../ioredis/time-limit.ts";
import { refusalOf } from "../scripts/script.ts";

export interface Requests {
  /**
   * Runs `run` until it succeeds or the time limit is over. Each attempt sends a new command. If
   * the reply to an earlier attempt was lost, the slots that it booked expire unused.
   *
   * @throws {@link StoreUnavailableError} when there is no reply in time, or the breaker is open.
   */
  send<T>(bucket: string, run: () => Promise<T>): Promise<T>;
  /**
   * Runs `run` only once. Use this for requests that must not be repeated. For example, slots that
   * are given back twice would be granted twice. Throws as `send` does.
   */
  sendOnce<T>(bucket: string, run: () => Promise<T>): Promise<T>;
  close(): void;
}

/** One request in flight. */
interface Sent {
  readonly breaker: ServerBreaker;
  /** The error of the last attempt. */
  lastError: unknown;
  /** True if the request's time limit is over. */
  isOver: boolean;
}

const PAUSE_MS = 50;

export function createRequests(
  redis: Redis | Cluster,
  breakers: Breakers,
  timeoutMs: number,
): Requests {
  const lastError = lastErrorOf(redis);
  let isClosed = false;

  function assertOpen(breaker: ServerBreaker): void {
    if (isClosed) throw new ClosedError("This sluice");
    if (breaker.isOpen) throw breakerOpen(breaker, lastError());
  }

  /**
   * Returns the cause of a failure: Redis's error reply if there is one, otherwise the connection's
   * last error, otherwise the error for the missing reply.
   */
  function causeOf(sent: Sent): unknown {
    return isReply(sent.lastError) ? sent.lastError : (lastError() ?? sent.lastError);
  }

  /** Runs `run` once a connection is ready, unless the request's time limit is over by then. */
  async function runOnce<T>(sent: Sent, run: () => Promise<T>): Promise<T> {
    if (redis.status !== "ready") {
      await untilReady(redis, timeoutMs);
      assertOpen(sent.breaker);
      if (sent.isOver) throw noAnswer(timeoutMs, causeOf(sent));
    }
    return run();
  }

  async function runAgain<T>(sent: Sent, run: () => Promise<T>): Promise<T> {
    const { breaker } = sent;
    for (;;) {
      assertOpen(breaker);
      const sentAtMs = performance.now();
      try {
        return await runOnce(sent, run);
      } catch (error) {
        if (isScriptRefusal(error) || error instanceof SluiceError) throw error;
        // An error reply does not count as a failure yet: it shows that the server is reachable,
        // and the cause may be over in a moment.
        if (!isReply(error)) breaker.fail(sentAtMs);
        sent.lastError = error;
        assertOpen(breaker);
        await pause(PAUSE_MS);
        if (sent.isOver) throw error;
      }
    }
  }

  async function inTime<T>(bucket: string, work: (sent: Sent) => Promise<T>): Promise<T> {
    const breaker = breakers.of(bucket);
    assertOpen(breaker);
    const sentAtMs = performance.now();
    const sent: Sent = { breaker, lastError: undefined, isOver: false };
    try {
      // The last command may still be in flight when the time limit is over. Its reply is then
      // ignored.
      const answer = await withTimeout(timeoutMs, work(sent), () => {
        sent.isOver = true;
        return noAnswer(timeoutMs, causeOf(sent));
      });
      breaker.succeed();
      return answer;
    } catch (error) {
      if (isScriptRefusal(error)) breaker.succeed();
      else if (!(error instanceof ClosedError) && !isReply(error)) {
        breaker.fail(sentAtMs, isReply(sent.lastError) ? sent.lastError : undefined);
      }
      throw error;
    }
  }

  return {
    send: (bucket, run) => inTime(bucket, (sent) => runAgain(sent, run)),
    sendOnce: (bucket, run) => inTime(bucket, (sent) => runOnce(sent, run)),
    close() {
      isClosed = true;
      breakers.close();
    },
  };
}

function noAnswer(timeoutMs: number, cause: unknown): StoreUnavailableError {
  const refusal = redisRefusalOf(cause);
  const connectionError = cause instanceof Error ? ` (${messageOf(cause)})` : "";
  const text =
    refusal === undefined
      ? `Redis gave no answer within ${timeoutMs} ms${connectionError}; nothing was started. Check that Redis runs and can be reached, or raise storeTimeoutMs.`
      : `Redis refused the request for ${timeoutMs} ms: ${refusal.reason}; nothing was started. ${refusal.remedy}.`;
  return new StoreUnavailableError(text, cause);
}

function breakerOpen(
  { server, refusal }: ServerBreaker,
  connectionError: Error | undefined,
): StoreUnavailableError {
  const refused = redisRefusalOf(refusal);
  if (refused !== undefined) {
    const { reason, remedy } = refused;
    return new StoreUnavailableError(
      `Redis at ${server} refuses requests: ${reason}; it is not being asked now, and nothing was started. ` +
        `${remedy}; requests go on as soon as it takes a probe.`,
      refusal,
    );
  }
  const last = connectionError === undefined ? "" : ` (${messageOf(connectionError)})`;
  return new StoreUnavailableError(
    `Redis at ${server} has failed repeatedly${last} and is not being asked now; nothing was started. ` +
      `Check that Redis runs, can be reached and accepts its user; requests go on as soon as it answers a probe.`,
    connectionError,
  );
}

function isScriptRefusal(error: unknown): boolean {
  return refusalOf(error) !== undefined;
}

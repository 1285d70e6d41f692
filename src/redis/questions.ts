import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { ClosedError, SluiceError, StoreUnavailableError } from "../core/errors.ts";
import { isReply, redisRefusalOf } from "../core/redis-refusal.ts";
import type { Breakers, ServerBreaker } from "./breakers.ts";
import { lastErrorOf, wordsOf } from "./last-error.ts";
import { untilReady } from "./ready.ts";
import { withinMs } from "./within.ts";

/** How a store asks its Redis: within a time, and not at all while a breaker is open. */
export interface Questions {
  /**
   * Asks until the time limit is over. A second try is a new question, never the
   * first one sent again: a booking whose reply was lost is left to expire.
   *
   * @throws {@link StoreUnavailableError} when there is no answer in time, or the breaker is open.
   */
  ask<T>(bucket: string, run: () => Promise<T>): Promise<T>;
  /** Asks once only: what comes back twice would be handed out twice. Throws as `ask` does. */
  askOnce<T>(bucket: string, run: () => Promise<T>): Promise<T>;
  close(): void;
}

const PAUSE_MS = 50;
/** What a script answers to a request that no second try could help. */
const REFUSAL = /^SLUICE_(?<reason>[A-Z_]+) (?<detail>.*)$/;

export function createQuestions(
  redis: Redis | Cluster,
  breakers: Breakers,
  timeoutMs: number,
): Questions {
  const lastError = lastErrorOf(redis);
  let isClosed = false;

  function assertAskable(breaker: ServerBreaker): void {
    if (isClosed) throw new ClosedError("This sluice");
    if (breaker.isOpen) throw shut(breaker.server, lastError());
  }

  async function tryUntil<T>(
    breaker: ServerBreaker,
    deadlineMs: number,
    run: () => Promise<T>,
  ): Promise<T> {
    for (;;) {
      assertAskable(breaker);
      const askedAtMs = performance.now();
      try {
        if (redis.status !== "ready") {
          await untilReady(redis, deadlineMs - askedAtMs);
          assertAskable(breaker);
        }
        return await run();
      } catch (error) {
        if (isRefusal(error) || isOwn(error)) throw error;
        // What Redis answers may be over in a moment.
        if (!isReply(error)) breaker.fail(askedAtMs);
        assertAskable(breaker);
        if (performance.now() + PAUSE_MS > deadlineMs) throw unavailable(timeoutMs, error);
        await pause(PAUSE_MS);
      }
    }
  }

  async function inTime<T>(bucket: string, ask: Work<T>): Promise<T> {
    const breaker = breakers.of(bucket);
    assertAskable(breaker);
    const askedAtMs = performance.now();
    try {
      // The last command may still be under way when its time is over; its reply is then lost.
      const work = ask(breaker, askedAtMs + timeoutMs);
      const answer = await withinMs(timeoutMs, work, () => unavailable(timeoutMs, lastError()));
      breaker.succeed();
      return answer;
    } catch (error) {
      if (isRefusal(error)) breaker.succeed();
      else if (!(error instanceof ClosedError) && !isReply(error)) breaker.fail(askedAtMs);
      throw error;
    }
  }

  return {
    ask: (bucket, run) =>
      inTime(bucket, (breaker, deadlineMs) => tryUntil(breaker, deadlineMs, run)),
    askOnce: (bucket, run) =>
      inTime(bucket, async () => {
        if (redis.status !== "ready") await untilReady(redis, timeoutMs);
        return run();
      }),
    close() {
      isClosed = true;
      breakers.close();
    },
  };
}

type Work<T> = (breaker: ServerBreaker, deadlineMs: number) => Promise<T>;

function unavailable(timeoutMs: number, cause: unknown): StoreUnavailableError {
  const refusal = redisRefusalOf(cause);
  const text =
    refusal === undefined
      ? `Redis gave no answer within ${timeoutMs} ms; the call was not started. See that Redis runs and can be reached, or raise storeTimeoutMs.`
      : `Redis refused it for ${timeoutMs} ms: ${refusal.reason}; the call was not started. ${refusal.remedy}.`;
  return new StoreUnavailableError(text, cause);
}

function shut(server: string, met: Error | undefined): StoreUnavailableError {
  const last = met === undefined ? "" : ` (${wordsOf(met)})`;
  return new StoreUnavailableError(
    `Redis at ${server} has failed of late${last} and is not asked for now; the call was not started. ` +
      `See that Redis runs, can be reached and lets its user in; it is asked again as soon as it answers a probe.`,
    met,
  );
}

/** Why a script refused what it was asked; undefined for any other error. */
export function refusalOf(
  error: unknown,
): { readonly reason: string; readonly detail: string } | undefined {
  const { reason, detail } = (error instanceof Error && REFUSAL.exec(error.message)?.groups) || {};
  return reason === undefined || detail === undefined ? undefined : { reason, detail };
}

function isRefusal(error: unknown): boolean {
  return refusalOf(error) !== undefined;
}

/** What was thrown here, not met on the way to Redis. */
function isOwn(error: unknown): boolean {
  return error instanceof SluiceError;
}

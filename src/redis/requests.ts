import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { wordsOf } from "../core/describe.ts";
import {
  ClosedError,
  isReply,
  redisRefusalOf,
  SluiceError,
  StoreUnavailableError,
} from "../core/errors.ts";
import type { Breakers, ServerBreaker } from "./breaker.ts";
import { lastErrorOf, untilReady, withinMs } from "./ioredis/readiness.ts";

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

  /** What Redis answered says more than what the connection met, and that more than that a command had no answer. */
  function causeOf({ met }: Question): unknown {
    return isReply(met) ? met : (lastError() ?? met);
  }

  /** Runs it as soon as there is a connection; of one that is over by then, nobody would hear the answer. */
  async function runOnce<T>(question: Question, run: () => Promise<T>): Promise<T> {
    if (redis.status !== "ready") {
      await untilReady(redis, timeoutMs);
      assertAskable(question.breaker);
      if (question.isOver) throw unavailable(timeoutMs, causeOf(question));
    }
    return run();
  }

  async function runAgain<T>(question: Question, run: () => Promise<T>): Promise<T> {
    const { breaker } = question;
    for (;;) {
      assertAskable(breaker);
      const askedAtMs = performance.now();
      try {
        return await runOnce(question, run);
      } catch (error) {
        if (isRefusal(error) || isOwn(error)) throw error;
        // What Redis answers may be over in a moment.
        if (!isReply(error)) breaker.fail(askedAtMs);
        question.met = error;
        assertAskable(breaker);
        await pause(PAUSE_MS);
        if (question.isOver) throw error;
      }
    }
  }

  async function inTime<T>(bucket: string, ask: Work<T>): Promise<T> {
    const breaker = breakers.of(bucket);
    assertAskable(breaker);
    const askedAtMs = performance.now();
    const question: Question = { breaker, met: undefined, isOver: false };
    try {
      // The last command may still be under way when its time is over; its reply is then lost.
      const answer = await withinMs(timeoutMs, ask(question), () => {
        question.isOver = true;
        return unavailable(timeoutMs, causeOf(question));
      });
      breaker.succeed();
      return answer;
    } catch (error) {
      if (isRefusal(error)) breaker.succeed();
      else if (!(error instanceof ClosedError) && !isReply(error)) breaker.fail(askedAtMs);
      throw error;
    }
  }

  return {
    ask: (bucket, run) => inTime(bucket, (question) => runAgain(question, run)),
    askOnce: (bucket, run) => inTime(bucket, (question) => runOnce(question, run)),
    close() {
      isClosed = true;
      breakers.close();
    },
  };
}

/** One question under way. */
interface Question {
  readonly breaker: ServerBreaker;
  /** What it met last. */
  met: unknown;
  /** Whether its time is over. */
  isOver: boolean;
}

type Work<T> = (question: Question) => Promise<T>;

function unavailable(timeoutMs: number, cause: unknown): StoreUnavailableError {
  const refusal = redisRefusalOf(cause);
  const met = cause instanceof Error ? ` (${wordsOf(cause)})` : "";
  const text =
    refusal === undefined
      ? `Redis gave no answer within ${timeoutMs} ms${met}; nothing was started. See that Redis runs and can be reached, or raise storeTimeoutMs.`
      : `Redis refused it for ${timeoutMs} ms: ${refusal.reason}; nothing was started. ${refusal.remedy}.`;
  return new StoreUnavailableError(text, cause);
}

function shut(server: string, met: Error | undefined): StoreUnavailableError {
  const last = met === undefined ? "" : ` (${wordsOf(met)})`;
  return new StoreUnavailableError(
    `Redis at ${server} has failed of late${last} and is not asked for now; nothing was started. ` +
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

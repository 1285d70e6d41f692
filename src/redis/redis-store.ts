import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { ClosedError, CostTooLargeError, StoreUnavailableError } from "../core/errors.ts";
import type { Drawn, DrawRequest, Store } from "../core/store.ts";
import { untilReady } from "./ready.ts";
import { runScript } from "./script.ts";
import { slotsDraw } from "./scripts/slots-draw.ts";
import { slotsReturn } from "./scripts/slots-return.ts";

const PAUSE_MS = 50;
/** What a script answers to a request that no second try could help. */
const REFUSAL = /^SLUICE_(?<reason>[A-Z_]+) (?<detail>.*)$/;

export interface RedisStoreOptions {
  /** A connection of the store's own, from `connect(input, "store")`; the store closes it. */
  readonly redis: Redis | Cluster;
  readonly prefix: string;
  /** How long a draw may wait for an answer, reconnects included. */
  readonly timeoutMs: number;
}

/** Buckets in Redis, shared by all replicas that use the same server and prefix. */
export function createRedisStore({ redis, prefix, timeoutMs }: RedisStoreOptions): Store {
  let isClosed = false;

  /**
   * Asks until the time limit is over. A second try is a new draw, never the
   * first one sent again: a booking whose reply was lost is left to expire.
   */
  async function ask(request: DrawRequest): Promise<Drawn> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      if (isClosed) throw new ClosedError("This sluice");
      try {
        await untilReady(redis, deadlineMs - performance.now());
        const sentAtMs = performance.now();
        const reply = await runScript(redis, slotsDraw, { prefix, ...request });
        return { ...reply, sentAtMs };
      } catch (error) {
        if (isRefusal(error)) throw costTooLarge(error, request) ?? error;
        // A server that accepts commands and answers none is given up, as a lost connection is.
        if (isSilence(error)) redis.disconnect(true);
        if (performance.now() + PAUSE_MS > deadlineMs) throw unavailable(timeoutMs, error);
        await pause(PAUSE_MS);
      }
    }
  }

  return {
    draw: (request) => withinMs(timeoutMs, ask(request)),
    async giveBack(request) {
      // Once only: slots that come back twice would be handed out twice.
      await untilReady(redis, timeoutMs);
      await runScript(redis, slotsReturn, { prefix, ...request });
    },
    async close() {
      isClosed = true;
      redis.disconnect();
    },
  };
}

/** The last command of an ask may still be under way when its time is over; its reply is then lost. */
async function withinMs<T>(timeoutMs: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const expiry = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(unavailable(timeoutMs, undefined)), timeoutMs);
  });
  try {
    return await Promise.race([work, expiry]);
  } finally {
    clearTimeout(timer);
  }
}

function unavailable(timeoutMs: number, cause: unknown): StoreUnavailableError {
  return new StoreUnavailableError(
    `Redis gave no answer within ${timeoutMs} ms; the call was not started. ` +
      `See that Redis runs and can be reached, or raise storeTimeoutMs.`,
    cause,
  );
}

function isRefusal(error: unknown): error is Error {
  return error instanceof Error && REFUSAL.test(error.message);
}

function isSilence(error: unknown): boolean {
  return error instanceof Error && error.message === "Command timed out";
}

function costTooLarge(error: Error, request: DrawRequest): CostTooLargeError | undefined {
  const { reason, detail } = REFUSAL.exec(error.message)?.groups ?? {};
  if (reason !== "COST_TOO_LARGE") return undefined;
  return new CostTooLargeError({
    bucket: request.bucket,
    cost: request.cost,
    maxCost: Number(detail),
  });
}

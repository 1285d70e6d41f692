import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import { ClosedError, CostTooLargeError, StoreUnavailableError } from "../core/errors.ts";
import type { DrawRequest, Store } from "../core/store.ts";
import { untilReady } from "./ready.ts";
import { runScript, type Script } from "./script.ts";
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
  // One listener for each bucket that waits for the connection.
  redis.setMaxListeners(0);
  // ioredis reports each failed attempt here; the draw that needs the connection reports it to its caller.
  let lastError: Error | undefined;
  redis.on("error", (error: Error) => {
    lastError = error;
  });

  /**
   * Asks until the time limit is over. A second try is a new draw, never the
   * first one sent again: a booking whose reply was lost is left to expire.
   */
  async function ask<Input, Output>(script: Script<Input, Output>, input: Input): Promise<Output> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      if (isClosed) throw new ClosedError("This sluice");
      try {
        await untilReady(redis, deadlineMs - performance.now());
        return await runScript(redis, script, input);
      } catch (error) {
        if (isRefusal(error)) throw error;
        // A server that accepts commands and answers none is given up, as a lost connection is.
        if (isSilence(error)) redis.disconnect(true);
        if (performance.now() + PAUSE_MS > deadlineMs) {
          throw new StoreUnavailableError(
            `Redis gave no answer within ${timeoutMs} ms; the call was not started. ` +
              `See that Redis runs and can be reached, or raise storeTimeoutMs.`,
            { cause: lastError ?? error },
          );
        }
        await pause(PAUSE_MS);
      }
    }
  }

  return {
    async draw(request) {
      try {
        return await ask(slotsDraw, { prefix, ...request });
      } catch (error) {
        throw costTooLarge(error, request) ?? error;
      }
    },
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

function isRefusal(error: unknown): error is Error {
  return error instanceof Error && REFUSAL.test(error.message);
}

function isSilence(error: unknown): boolean {
  return error instanceof Error && error.message === "Command timed out";
}

function costTooLarge(error: unknown, request: DrawRequest): CostTooLargeError | undefined {
  const { reason, detail } = (isRefusal(error) && REFUSAL.exec(error.message)?.groups) || {};
  if (reason !== "COST_TOO_LARGE") return undefined;
  return new CostTooLargeError({
    bucket: request.bucket,
    cost: request.cost,
    maxCost: Number(detail),
  });
}

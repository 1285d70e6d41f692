import { setTimeout as pause } from "node:timers/promises";
import type { Cluster, Redis } from "ioredis";
import type { Reckoned } from "../core/align.ts";
import {
  ClosedError,
  CostTooLargeError,
  StoreUnavailableError,
  WrongResetsError,
} from "../core/errors.ts";
import type { DrawRequest, Store } from "../core/store.ts";
import { untilReady } from "./ready.ts";
import { runScript, type Script } from "./script.ts";
import { bucketPeek } from "./scripts/bucket-peek.ts";
import { bucketSteer } from "./scripts/bucket-steer.ts";
import { costsSettle } from "./scripts/costs-settle.ts";
import { leasesRelease, leasesRenew } from "./scripts/leases.ts";
import { slotsDraw } from "./scripts/slots-draw.ts";
import { slotsReturn } from "./scripts/slots-return.ts";
import { createServerDays } from "./server-days.ts";
import { createWakeCalls } from "./wake-calls.ts";

const PAUSE_MS = 50;
/** What a script answers to a request that no second try could help. */
const REFUSAL = /^SLUICE_(?<reason>[A-Z_]+) (?<detail>.*)$/;

export interface RedisStoreOptions {
  /** A connection of the store's own, from `connect(input, "store")`; the store closes it. */
  readonly redis: Redis | Cluster;
  /** Another one, made when somebody first listens. */
  readonly connectListener: () => Redis | Cluster;
  readonly prefix: string;
  /** How long a draw may wait for an answer, reconnects included. */
  readonly timeoutMs: number;
}

/** Buckets in Redis, shared by all replicas that use the same server and prefix. */
export function createRedisStore(options: RedisStoreOptions): Store {
  const { redis, prefix, timeoutMs } = options;
  const wakeCalls = createWakeCalls(options.connectListener, prefix);
  const days = createServerDays(redis);
  let isClosed = false;

  /**
   * Asks until the time limit is over. A second try is a new question, never the
   * first one sent again: a booking whose reply was lost is left to expire.
   */
  async function ask<T>(run: () => Promise<T>): Promise<T> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      if (isClosed) throw new ClosedError("This sluice");
      try {
        await untilReady(redis, deadlineMs - performance.now());
        return await run();
      } catch (error) {
        if (isRefusal(error)) throw error;
        if (performance.now() + PAUSE_MS > deadlineMs) throw unavailable(timeoutMs, error);
        await pause(PAUSE_MS);
      }
    }
  }

  /** Once only: what comes back twice would be handed out twice. */
  async function tell<Input extends Reckoned, Output>(
    script: Script<Input & { prefix: string }, Output>,
    input: Input,
  ): Promise<Output> {
    await untilReady(redis, timeoutMs);
    return runScript(redis, script, { ...(await days.reckon(input)), prefix });
  }

  async function drawOnce(request: DrawRequest): ReturnType<Store["draw"]> {
    const input = await days.reckon(request);
    const sentAtMs = performance.now();
    try {
      const reply = await runScript(redis, slotsDraw, { ...input, prefix });
      return { ...reply, sentAtMs };
    } catch (error) {
      const wrong = wrongResets(error);
      if (wrong === undefined) throw error;
      days.setServerUs(wrong.serverUs);
      return drawOnce(request);
    }
  }

  /** A lost reply may have granted leases that nobody holds: they are given back before the next try. */
  function drawAgain(request: DrawRequest): () => ReturnType<Store["draw"]> {
    let isFirst = true;
    return async () => {
      if (!isFirst && request.leases > 0) await releaseAll(request);
      isFirst = false;
      return drawOnce(request);
    };
  }

  async function releaseAll({ wishes, lease, leases, ...rest }: DrawRequest): Promise<void> {
    const numbers = Array.from({ length: Math.min(leases, 1_000) }, (_, index) => lease + index);
    const keys = new Map(wishes.map(({ key, keyLimits }) => [key, keyLimits]));
    for (const [key, keyLimits] of keys) {
      const { bucket, asker, terms } = rest;
      await tell(leasesRelease, { bucket, asker, terms, key, keyLimits, leases: numbers });
    }
  }

  async function draw(request: DrawRequest): ReturnType<Store["draw"]> {
    try {
      return await withinMs(timeoutMs, ask(drawAgain(request)));
    } catch (error) {
      throw costTooLarge(error, request) ?? error;
    }
  }

  return {
    draw,
    giveBack: (request) => tell(slotsReturn, request),
    settle: (request) => tell(costsSettle, request),
    renew: (request) => tell(leasesRenew, request),
    release: (request) => tell(leasesRelease, request),
    steer: (request) =>
      withinMs(
        timeoutMs,
        ask(() => tell(bucketSteer, request)),
      ),
    peek: (request) =>
      withinMs(
        timeoutMs,
        ask(() => tell(bucketPeek, request)),
      ),
    listen: (asker, wake) => wakeCalls.listen(asker, wake),
    async close() {
      isClosed = true;
      wakeCalls.close();
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

function wrongResets(error: unknown): WrongResetsError | undefined {
  const { reason, detail } = (isRefusal(error) && REFUSAL.exec(error.message)?.groups) || {};
  return reason === "WRONG_RESETS" ? new WrongResetsError(Number(detail)) : undefined;
}

function costTooLarge(error: unknown, request: DrawRequest): CostTooLargeError | undefined {
  const { reason, detail } = (isRefusal(error) && REFUSAL.exec(error.message)?.groups) || {};
  if (reason !== "COST_TOO_LARGE") return undefined;
  const [cost, maxCost] = detail!.split(" ").map(Number) as [number, number];
  const limits = request.wishes.flatMap(({ keyLimits, costs }) =>
    [...request.terms.limits, ...keyLimits].filter((_limit, index) => costs[index] === cost),
  );
  const unit = limits.find(({ capacity }) => capacity === maxCost)?.unit;
  return new CostTooLargeError({ bucket: request.bucket, cost, unit, maxCost });
}

import type { Cluster, Redis } from "ioredis";
import { WrongResetsError, type CostTooLargeError } from "../core/errors.ts";
import type { StoreEvent } from "../core/events.ts";
import type { Reckoned } from "../core/limits/calendar-windows.ts";
import { costTooLarge } from "../core/limits/registry.ts";
import type { Logger } from "../core/logger.ts";
import type { DrawRequest, Store } from "../core/store.ts";
import type { BreakerOptions } from "./breaker.ts";
import { createBreakers } from "./breakers.ts";
import { bucketKeys } from "./bucket-keys.ts";
import { drawSlots } from "./draw-slots.ts";
import { createQuestions, refusalOf } from "./questions.ts";
import { runScript, type Script } from "./script.ts";
import { bucketPeek } from "./scripts/bucket-peek.ts";
import { bucketSteer } from "./scripts/bucket-steer.ts";
import { costsSettle } from "./scripts/costs-settle.ts";
import { leasesRelease, leasesRenew } from "./scripts/leases.ts";
import { slotsReturn } from "./scripts/slots-return.ts";
import { createServerDays } from "./server-days.ts";
import { createWakeCalls } from "./wake-calls.ts";

export interface RedisStoreOptions {
  /** A connection of the store's own, from `connect(input, "store")`; the store closes it. */
  readonly redis: Redis | Cluster;
  /** Another one, made when somebody first listens. */
  readonly connectListener: () => Redis | Cluster;
  readonly prefix: string;
  /** How long a draw may wait for an answer, reconnects included. */
  readonly timeoutMs: number;
  readonly breaker: BreakerOptions;
  readonly logger: Logger;
  /** A server answers no more, or answers again. */
  readonly onChange: (event: StoreEvent) => void;
}

/** Buckets in Redis, shared by all replicas that use the same server and prefix. */
export function createRedisStore(options: RedisStoreOptions): Store {
  const { redis, prefix, timeoutMs } = options;
  const wakeCalls = createWakeCalls(options.connectListener, prefix);
  const days = createServerDays(redis);
  const breakers = createBreakers(redis, {
    ...options,
    keyOf: (bucket) => bucketKeys(prefix, bucket, [], [])[0]!,
  });
  const questions = createQuestions(redis, breakers, timeoutMs);

  async function tell<Input extends Reckoned & { readonly bucket: string }, Output>(
    script: Script<Input & { prefix: string }, Output>,
    input: Input,
  ): Promise<Output> {
    return runScript(redis, script, { ...(await days.reckon(input)), prefix });
  }

  function tellOnce<Input extends Reckoned & { readonly bucket: string }, Output>(
    script: Script<Input & { prefix: string }, Output>,
    input: Input,
  ): Promise<Output> {
    return questions.askOnce(input.bucket, () => tell(script, input));
  }

  async function drawOnce(request: DrawRequest): ReturnType<Store["draw"]> {
    const input = await days.reckon(request);
    const sentAtMs = performance.now();
    try {
      const reply = await drawSlots((script, given) => runScript(redis, script, given), {
        ...input,
        prefix,
      });
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
      return await questions.ask(request.bucket, drawAgain(request));
    } catch (error) {
      throw readCostTooLarge(error, request) ?? error;
    }
  }

  return {
    draw,
    giveBack: (request) => tellOnce(slotsReturn, request),
    settle: (request) => tellOnce(costsSettle, request),
    renew: (request) => tellOnce(leasesRenew, request),
    release: (request) => tellOnce(leasesRelease, request),
    steer: (request) => questions.ask(request.bucket, () => tell(bucketSteer, request)),
    peek: (request) => questions.ask(request.bucket, () => tell(bucketPeek, request)),
    listen: (asker, wake) => wakeCalls.listen(asker, wake),
    async close() {
      questions.close();
      wakeCalls.close();
      redis.disconnect();
    },
  };
}

function wrongResets(error: unknown): WrongResetsError | undefined {
  const refusal = refusalOf(error);
  return refusal?.reason === "WRONG_RESETS"
    ? new WrongResetsError(Number(refusal.detail))
    : undefined;
}

function readCostTooLarge(error: unknown, request: DrawRequest): CostTooLargeError | undefined {
  const refusal = refusalOf(error);
  if (refusal?.reason !== "COST_TOO_LARGE") return undefined;
  const [cost, maxCost] = refusal.detail.split(" ").map(Number) as [number, number];
  const limits = request.wishes.flatMap(({ keyLimits, costs }) =>
    [...request.terms.limits, ...keyLimits].filter((_limit, index) => costs[index] === cost),
  );
  const limit = limits.find(({ capacity }) => capacity === maxCost);
  return limit && costTooLarge(request.bucket, cost, limit);
}

import type { Cluster, Redis } from "ioredis";
import { WrongResetsError, type CostTooLargeError } from "../core/errors.ts";
import type { StoreEvent } from "../core/events.ts";
import { hasDays, reckon, type Reckoned } from "../core/limits/calendar-windows.ts";
import { costTooLarge } from "../core/limits/registry.ts";
import type { Logger } from "../core/logger.ts";
import type { DrawReply, DrawRequest, Store } from "../core/store.ts";
import { createBreakers, type BreakerOptions } from "./breaker.ts";
import { createWakeCalls } from "./pubsub.ts";
import { createQuestions, refusalOf } from "./requests.ts";
import { bucketPeek, bucketSteer } from "./scripts/bucket.ts";
import { costsSettle, slotsReturn } from "./scripts/give-back.ts";
import { bucketKeys } from "./scripts/keys.ts";
import { leasesRelease, leasesRenew } from "./scripts/leases.ts";
import { runScript, type Script } from "./scripts/script.ts";
import { slotsDraw, type SlotsDraw } from "./scripts/slots-draw.ts";
import { isPlainTry, slotsTry } from "./scripts/slots-try.ts";

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

/** Draws by the script that is made for such a request; what that finds to be unusual, by the one that knows all. */
export async function drawSlots(
  run: <Output>(script: Script<SlotsDraw, Output>, input: SlotsDraw) => Promise<Output>,
  input: SlotsDraw,
): Promise<DrawReply> {
  return (isPlainTry(input) ? await run(slotsTry, input) : undefined) ?? run(slotsDraw, input);
}

/** Calendar days as they lie about the server's now, whatever this process's clock says. */
interface ServerDays {
  /** The same request, with its calendar days; most have none, and cost no question. */
  reckon<Request extends Reckoned>(request: Request): Promise<Request>;
  /** The server has told its time. */
  setServerUs(serverUs: number): void;
}

function createServerDays(redis: Redis | Cluster): ServerDays {
  /** How far the server's clock runs ahead of this process's, once calendar days need to know it. */
  let aheadUs: number | undefined;

  async function askAheadUs(): Promise<number> {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000_000 + Number(micros) - wallUs();
  }

  return {
    async reckon(request) {
      if (!hasDays(request)) return request;
      aheadUs ??= await askAheadUs();
      return reckon(request, wallUs() + aheadUs);
    },
    setServerUs(serverUs) {
      aheadUs = serverUs - wallUs();
    },
  };
}

function wallUs(): number {
  return Date.now() * 1_000;
}

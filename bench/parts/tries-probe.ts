import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { TryOptions } from "sluice";
import { importBuild } from "../compare/import-build.ts";
import { watchRedisCost, type RedisCost } from "../fleet/redis-cost.ts";

export type Asked = "sluice" | "rate-limiter-flexible" | "rate-limiter-flexible-remembering";

/** What one process tries, and for how long. */
export interface TriesSetup {
  readonly redisUrl: string;
  readonly limiter: Asked;
  /** The folder of the built package that runs. Defaults to this working tree. */
  readonly build?: string | undefined;
  /** The number of keys that each call has at once. */
  readonly names: number;
  /** The number of different values of each of these keys. */
  readonly keys: number;
  /** The calls allowed per key and window. */
  readonly max: number;
  readonly windowSeconds: number;
  readonly callers: number;
  readonly startUpSeconds: number;
  readonly seconds: number;
}

export interface TriesReport {
  /** The number of calls in the measured time. */
  readonly calls: number;
  readonly refused: number;
  readonly seconds: number;
  readonly cost: RedisCost;
  /** User and system time of this process in the measured time. */
  readonly cpuUs: number;
  /** The most calls that were allowed to one key in one window ÷ its limit, in the whole run. */
  readonly fullestWindow: number;
  /**
   * The allowed calls ÷ the sum of the limits of all windows with an allowed call, in the whole run. A call with
   * several keys counts once for each key.
   */
  readonly used: number;
}

/**
 * Tries one call. Resolves with the current window of each of its keys, or with undefined if the call was refused.
 */
type Ask = (keys: readonly number[]) => Promise<readonly number[] | undefined>;

interface Asker {
  readonly ask: Ask;
  close(): Promise<void>;
}

const LONGEST_TURN_MS = 1;
const NAMES = ["address", "email", "account"] as const;

async function probe(setup: TriesSetup): Promise<TriesReport> {
  const { redisUrl, callers, startUpSeconds, seconds } = setup;
  const redis = new Redis(redisUrl);
  const asker = setup.limiter === "sluice" ? await openSluice(setup) : openPeer(setup);
  const windows = countWindows(setup);
  let calls = 0;
  let refused = 0;
  let turnBeganMs: number | undefined;

  async function keepAsking(untilMs: number): Promise<void> {
    let nowMs = performance.now();
    while (nowMs < untilMs) {
      const keys = Array.from({ length: setup.names }, () =>
        Math.floor(Math.random() * setup.keys),
      );
      const found = await asker.ask(keys);
      calls += 1;
      if (found === undefined) refused += 1;
      else for (const [index, key] of keys.entries()) windows.add(index, key, found[index]!);
      nowMs = performance.now();
      // Replies from the process's memory come immediately, so without this pause no other work would run.
      if (nowMs >= turnEndsMs(nowMs)) await nextTurn();
    }
  }

  /** Returns when this turn of the event loop has lasted long enough. All callers share the turn. */
  function turnEndsMs(nowMs: number): number {
    if (turnBeganMs === undefined) {
      turnBeganMs = nowMs;
      setImmediate(() => {
        turnBeganMs = undefined;
      });
    }
    return turnBeganMs + LONGEST_TURN_MS;
  }

  /** Resolves when all calls have their replies, so that all work of Redis belongs to counted calls. */
  async function askFor(lastsSeconds: number): Promise<number> {
    const startMs = performance.now();
    const untilMs = startMs + lastsSeconds * 1_000;
    calls = 0;
    refused = 0;
    await Promise.all(Array.from({ length: callers }, () => keepAsking(untilMs)));
    return (performance.now() - startMs) / 1_000;
  }

  await askFor(startUpSeconds);
  const costSince = await watchRedisCost(redis);
  const usedBefore = process.cpuUsage();
  const lasted = await askFor(seconds);
  const { user, system } = process.cpuUsage(usedBefore);
  const cost = await costSince();
  await asker.close();
  redis.disconnect();
  return {
    calls,
    refused,
    seconds: lasted,
    cost,
    cpuUs: user + system,
    ...windows.sum(),
  };
}

async function openSluice(setup: TriesSetup): Promise<Asker> {
  const { redisUrl, build, names, max, windowSeconds } = setup;
  const { createSluice, fixedWindow } = await importBuild(build);
  const sluice = createSluice({ redis: redisUrl });
  const ofKey = { limits: [fixedWindow(max, `${windowSeconds}s`)] };
  const named = NAMES.slice(0, names);
  const perKey = names === 1 ? ofKey : Object.fromEntries(named.map((name) => [name, ofKey]));
  const bucket = sluice.bucket("bench", { perKey });
  const optionsOf = ([first, second, third]: readonly number[]): TryOptions =>
    names === 1
      ? { key: `k${first}` }
      : { keys: { address: `k${first}`, email: `k${second}`, account: `k${third}` } };
  return {
    async ask(keys) {
      const { slot } = await bucket.tryDraw(optionsOf(keys));
      const window = slot && Math.floor(slot.atMs / 1_000 / windowSeconds);
      return window === undefined ? undefined : keys.map(() => window);
    },
    close: () => sluice.close(),
  };
}

/** Opens the peer. It has no limiter for several keys, so a call consumes from one limiter per key, all at once. */
function openPeer({ redisUrl, limiter, names, max, windowSeconds }: TriesSetup): Asker {
  const redis = new Redis(redisUrl);
  const limiters = NAMES.slice(0, names).map(
    (keyPrefix) =>
      new RateLimiterRedis({
        storeClient: redis,
        keyPrefix,
        points: max,
        duration: windowSeconds,
        ...(limiter === "rate-limiter-flexible-remembering" && { inMemoryBlockOnConsumed: max }),
      }),
  );
  let window = 0;
  const windowsOf = limiters.map(() => new Map<number, number>());

  async function consume(index: number, key: number): Promise<number | undefined> {
    try {
      // The peer's windows begin with their first call.
      const { isFirstInDuration } = await limiters[index]!.consume(`k${key}`);
      if (isFirstInDuration) windowsOf[index]!.set(key, (window += 1));
      return windowsOf[index]!.get(key);
    } catch (refusal) {
      if (refusal instanceof RateLimiterRes) return undefined;
      throw refusal;
    }
  }

  return {
    async ask(keys) {
      const windows =
        keys.length === 1
          ? [await consume(0, keys[0]!)]
          : await Promise.all(keys.map((key, index) => consume(index, key)));
      return windows.every((each) => each !== undefined) ? windows : undefined;
    },
    close: async () => redis.disconnect(),
  };
}

/**
 * Counts the calls per window. Replies for one key come in the order in which Redis sent them, so one open window per
 * key is enough.
 */
function countWindows({ names, keys, max }: TriesSetup): {
  add(index: number, key: number, window: number): void;
  sum(): Pick<TriesReport, "fullestWindow" | "used">;
} {
  const newest = new Float64Array(names * keys).fill(-1);
  const counts = new Uint32Array(names * keys);
  let windows = 0;
  let allowed = 0;
  let most = 0;
  return {
    add(index, value, window) {
      const key = index * keys + value;
      if (window !== newest[key]) {
        newest[key] = window;
        counts[key] = 0;
        windows += 1;
      }
      counts[key]! += 1;
      allowed += 1;
      most = Math.max(most, counts[key]!);
    },
    sum: () => ({ fullestWindow: most / max, used: allowed / (windows * max) }),
  };
}

const [setup] = process.argv.slice(2);
if (setup !== undefined) process.send?.(await probe(JSON.parse(setup) as TriesSetup));

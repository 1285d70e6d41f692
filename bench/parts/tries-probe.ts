import { setImmediate as nextTurn } from "node:timers/promises";
import { Redis } from "ioredis";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import { createSluice, fixedWindow } from "sluice";
import { watchRedisCost, type RedisCost } from "../fleet/redis-cost.ts";

export type Asked = "sluice" | "rate-limiter-flexible" | "rate-limiter-flexible-remembering";

/** What one process asks for, and for how long. */
export interface TriesSetup {
  readonly redisUrl: string;
  readonly limiter: Asked;
  readonly keys: number;
  /** The calls allowed per key and window. */
  readonly max: number;
  readonly windowSeconds: number;
  readonly callers: number;
  readonly startUpSeconds: number;
  readonly seconds: number;
}

export interface TriesReport {
  /** Counted in the measured time. */
  readonly calls: number;
  readonly refused: number;
  readonly seconds: number;
  readonly cost: RedisCost;
  /** In the whole run: the most calls allowed to one key in one window ÷ its limit. */
  readonly fullestWindow: number;
  /** In the whole run: the allowed calls ÷ the limit of all windows with an allowed call. */
  readonly used: number;
}

/** Resolves with the window in which a call was allowed, or undefined if it was refused. */
type Ask = (key: number) => Promise<number | undefined>;

interface Asker {
  readonly ask: Ask;
  close(): Promise<void>;
}

const LONGEST_TURN_MS = 1;

async function probe(setup: TriesSetup): Promise<TriesReport> {
  const { redisUrl, callers, startUpSeconds, seconds } = setup;
  const redis = new Redis(redisUrl);
  const asker = setup.limiter === "sluice" ? openSluice(setup) : openPeer(setup);
  const windows = countWindows(setup);
  let calls = 0;
  let refused = 0;
  let turnBeganMs: number | undefined;

  async function keepAsking(untilMs: number): Promise<void> {
    let nowMs = performance.now();
    while (nowMs < untilMs) {
      const key = Math.floor(Math.random() * setup.keys);
      const window = await asker.ask(key);
      calls += 1;
      if (window === undefined) refused += 1;
      else windows.add(key, window);
      nowMs = performance.now();
      // Answers from the process's memory come at once, so without this nothing else would run.
      if (nowMs >= turnEndsMs(nowMs)) await nextTurn();
    }
  }

  /** When this turn of the event loop has lasted long enough; shared by all callers. */
  function turnEndsMs(nowMs: number): number {
    if (turnBeganMs === undefined) {
      turnBeganMs = nowMs;
      setImmediate(() => {
        turnBeganMs = undefined;
      });
    }
    return turnBeganMs + LONGEST_TURN_MS;
  }

  /** Resolves when all calls have their answers, so that the work of Redis belongs to the counted calls. */
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
  const lasted = await askFor(seconds);
  const cost = await costSince();
  await asker.close();
  redis.disconnect();
  return {
    calls,
    refused,
    seconds: lasted,
    cost,
    ...windows.sum(),
  };
}

function openSluice({ redisUrl, max, windowSeconds }: TriesSetup): Asker {
  const sluice = createSluice({ redis: redisUrl });
  const perKey = { limits: [fixedWindow(max, `${windowSeconds}s`)] };
  const bucket = sluice.bucket("bench", { perKey });
  return {
    async ask(key) {
      const { slot } = await bucket.tryDraw({ key: `k${key}` });
      return slot && Math.floor(slot.atMs / 1_000 / windowSeconds);
    },
    close: () => sluice.close(),
  };
}

function openPeer({ redisUrl, limiter, max, windowSeconds }: TriesSetup): Asker {
  const redis = new Redis(redisUrl);
  const rateLimiter = new RateLimiterRedis({
    storeClient: redis,
    points: max,
    duration: windowSeconds,
    ...(limiter === "rate-limiter-flexible-remembering" && { inMemoryBlockOnConsumed: max }),
  });
  let window = 0;
  const windowOf = new Map<number, number>();
  return {
    async ask(key) {
      try {
        // Its windows begin with their first call.
        const { isFirstInDuration } = await rateLimiter.consume(`k${key}`);
        if (isFirstInDuration) windowOf.set(key, (window += 1));
        return windowOf.get(key);
      } catch (refusal) {
        if (refusal instanceof RateLimiterRes) return undefined;
        throw refusal;
      }
    },
    close: async () => redis.disconnect(),
  };
}

/** Answers for one key come in the order in which Redis gave them, so one window per key is enough. */
function countWindows({ keys, max }: TriesSetup): {
  add(key: number, window: number): void;
  sum(): Pick<TriesReport, "fullestWindow" | "used">;
} {
  const newest = new Float64Array(keys).fill(-1);
  const counts = new Uint32Array(keys);
  let windows = 0;
  let allowed = 0;
  let most = 0;
  return {
    add(key, window) {
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

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { once } from "node:events";
import { Redis } from "ioredis";
import { afterEach } from "vitest";
import { createSluice, type Sluice, type SluiceOptions } from "sluice";
import { startRedis } from "./local-redis.ts";
import type { LocalRedis } from "./private-redis.ts";

/** A Redis of the test's own, to be broken, and replicas on it. */
export interface OwnRedis {
  readonly url: string;
  readonly port: number;
  /** A connection beside those of the replicas. */
  readonly operator: Redis;
  /** Another replica; it is silent, and waits long for Redis unless told otherwise. */
  open(options?: SluiceOptions): Sluice;
  /** Ends the server as a power cut does, and starts it again in the same place and folder. */
  crash(): Promise<void>;
  signal(name: NodeJS.Signals): void;
}

export interface OwnRedisServers {
  readonly start: (args?: readonly string[]) => Promise<OwnRedis>;
}

const SILENT = { warn: () => {}, error: () => {} };

/** Servers of one test; they end after it, with all that was opened on them. */
export function ownRedisServers(): OwnRedisServers {
  let endings: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    const all = endings.toReversed();
    endings = [];
    for (const end of all) await end();
  });

  return {
    async start(args = []) {
      const dir = await mkdtemp(join(tmpdir(), "sluice-own-"));
      endings.push(() => rm(dir, { recursive: true, force: true }));
      let redis: LocalRedis = await startRedis({ fresh: true, args, dir });
      endings.push(() => redis.stop());
      const { url } = redis;
      const port = Number(new URL(url).port);
      const operator = new Redis(url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
      operator.on("error", () => undefined);
      endings.push(async () => operator.disconnect());
      return {
        url,
        port,
        operator,
        open(options) {
          const sluice = createSluice({
            redis: url,
            storeTimeoutMs: 30_000,
            logger: SILENT,
            ...options,
          });
          endings.push(() => sluice.close());
          return sluice;
        },
        signal: (name) => void process.kill(redis.pid!, name),
        async crash() {
          const broken = operator.status === "ready" ? once(operator, "close") : undefined;
          process.kill(redis.pid!, "SIGKILL");
          await broken;
          await redis.stop();
          redis = await startRedis({ fresh: true, args, dir, port });
        },
      };
    },
  };
}

/** The server's clock, in ms since 1970. */
export async function redisNowMs(operator: Redis): Promise<number> {
  const [seconds, micros] = await operator.time();
  return Number(seconds) * 1_000 + Number(micros) / 1_000;
}

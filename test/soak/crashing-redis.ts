import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { startRedis } from "../support/redis/local-redis.ts";
import type { LocalRedis } from "../support/redis/private-redis.ts";

/** A Redis that writes its log always, and can be killed and started again in its place. */
export interface CrashingRedis {
  readonly url: string;
  readonly port: number;
  /** A connection of the soak's own, beside the proxy. */
  readonly operator: Redis;
  kill(): Promise<void>;
  /** Starts it again after it was killed; resolves when it answers. */
  start(): Promise<void>;
  stop(): Promise<void>;
}

const ARGS = ["--appendonly", "yes", "--appendfsync", "always"];

export async function startCrashingRedis(): Promise<CrashingRedis> {
  const dir = await mkdtemp(join(tmpdir(), "sluice-soak-"));
  let server: LocalRedis = await startRedis({ fresh: true, args: ARGS, dir });
  const { url } = server;
  const port = Number(new URL(url).port);
  const operator = new Redis(url, { retryStrategy: () => 20, maxRetriesPerRequest: null });
  operator.on("error", () => undefined);

  return {
    url,
    port,
    operator,
    async kill() {
      process.kill(server.pid!, "SIGKILL");
      await server.stop();
    },
    async start() {
      server = await startRedis({ fresh: true, args: ARGS, dir, port });
    },
    async stop() {
      operator.disconnect();
      await server.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

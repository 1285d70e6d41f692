import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Redis } from "ioredis";
import { startRedis } from "../../support/redis/local-redis.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";

/** A Redis that syncs its append-only log on every write, and can be killed and restarted on the same port. */
export interface CrashingRedis {
  readonly url: string;
  readonly port: number;
  /** The soak's own connection, which bypasses the proxy. */
  readonly operator: Redis;
  kill(): Promise<void>;
  /** Restarts it after a kill; resolves when it answers. */
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

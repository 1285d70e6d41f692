import { startContainerRedis, hasContainerEngine } from "./container-redis.ts";
import { canInstallRedis, findRedisServer, installRedis } from "./redis-server.ts";
import { startPrivateRedis, type LocalRedis, type PrivateRedisOptions } from "./private-redis.ts";

export interface LocalRedisOptions extends PrivateRedisOptions {
  /** Start a server of one's own although $REDIS_URL is set; for tests that break it. Defaults to false. */
  readonly fresh?: boolean;
  /** Serve a Redis in memory rather than install one; for examples, not for tests. Defaults to false. */
  readonly orInMemory?: boolean;
}

const HOW_TO_GET_REDIS =
  "No Redis to run on: set $REDIS_URL, install redis-server or valkey-server, or start Docker.";

/**
 * Finds a Redis without asking anybody to prepare one: $REDIS_URL, a server on
 * the PATH, a container, and as root on Debian the distribution's package.
 */
export async function startRedis(options: LocalRedisOptions = {}): Promise<LocalRedis> {
  const { fresh = false, orInMemory = false, ...serverOptions } = options;
  const existingUrl = process.env["REDIS_URL"];
  if (existingUrl && !fresh) {
    return { url: existingUrl, origin: "$REDIS_URL", stop: async () => {} };
  }

  const binary = await findRedisServer();
  if (binary) return startPrivateRedis(binary, serverOptions);
  if (await hasContainerEngine()) return startContainerRedis(serverOptions);
  if (orInMemory) {
    const { listenInMemory } = await import("../../../src/stores/memory/redis/server/listener.ts");
    const { url, close } = await listenInMemory();
    return { url, origin: "in memory", stop: close };
  }
  if (!(await canInstallRedis())) throw new Error(HOW_TO_GET_REDIS);
  return startPrivateRedis(await installRedis(), serverOptions);
}

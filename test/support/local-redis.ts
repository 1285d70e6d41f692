import { startContainerRedis, hasContainerEngine } from "./container-redis.ts";
import { canInstallRedis, findRedisServer, installRedis } from "./redis-server.ts";
import { startPrivateRedis, type PrivateRedisOptions } from "./private-redis.ts";

/** A Redis that tests, the demo and the benchmark may use until they stop it. */
export interface LocalRedis {
  readonly url: string;
  /** How it was come by, for a log line: `$REDIS_URL`, `/usr/bin/redis-server`, `container redis:8-alpine`. */
  readonly origin: string;
  /** The server's process, where it is a private one: faults are made by signalling it. */
  readonly pid?: number;
  /** Ends a server that was started for this call, and leaves one that was there before alone. */
  stop(): Promise<void>;
}

export interface LocalRedisOptions extends PrivateRedisOptions {
  /** Start a server of one's own although $REDIS_URL is set; for tests that break it. Defaults to false. */
  readonly fresh?: boolean;
}

const HOW_TO_GET_REDIS =
  "No Redis to run on: set $REDIS_URL, install redis-server or valkey-server, or start Docker.";

/**
 * Finds a Redis without asking anybody to prepare one: $REDIS_URL, a server on
 * the PATH, a container, and as root on Debian the distribution's package.
 */
export async function startRedis(options: LocalRedisOptions = {}): Promise<LocalRedis> {
  const { fresh = false, ...serverOptions } = options;
  const existingUrl = process.env["REDIS_URL"];
  if (existingUrl && !fresh) {
    return { url: existingUrl, origin: "$REDIS_URL", stop: async () => {} };
  }

  const binary = await findRedisServer();
  if (binary) return startPrivateRedis(binary, serverOptions);
  if (await hasContainerEngine()) return startContainerRedis(serverOptions);
  if (!(await canInstallRedis())) throw new Error(HOW_TO_GET_REDIS);
  return startPrivateRedis(await installRedis(), serverOptions);
}

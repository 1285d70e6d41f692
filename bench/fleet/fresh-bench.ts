import { availableParallelism, cpus, loadavg } from "node:os";
import { Redis } from "ioredis";
import { startRedis } from "../../test/support/redis/local-redis.ts";
import { createFleet } from "./fleet.ts";
import type { Bench } from "./run-load.ts";

/** Starts a Redis and replicas for a single use, so that no earlier run affects the results. */
export async function withFreshBench<Result>(
  use: (bench: Bench) => Promise<Result>,
): Promise<Result> {
  const server = await startRedis({ fresh: true });
  const redis = new Redis(server.url);
  const fleet = createFleet();
  try {
    return await use({ redisUrl: server.url, redis, fleet });
  } finally {
    await fleet.end();
    redis.disconnect();
    await server.stop();
  }
}

/** Describes the date, the versions and the machine of a run. */
export async function describeRun({ redis }: Bench): Promise<string> {
  const version = /^redis_version:(.*)$/m.exec(await redis.info("server"))?.[1]?.trim();
  const load = loadavg().map((value) => value.toFixed(2));
  return [
    `${new Date().toISOString().slice(0, 10)}:`,
    `Node ${process.version}, Redis ${version},`,
    `${availableParallelism()} × ${cpus()[0]?.model ?? "unknown CPU"}, shared by Redis and all replicas.`,
    `Load of the machine before it began: ${load.join(", ")}.`,
  ].join(" ");
}

import { describe, expect, it, onTestFinished } from "vitest";
import { createSluice, type Logger, type Sluice } from "sluice";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const servers = ownRedisServers();

function openLog(): { readonly logger: Logger; readonly lines: string[] } {
  const lines: string[] = [];
  const log = (_facts: object, line: string): void => void lines.push(line);
  return { logger: { warn: log, error: log }, lines };
}

/** Draws in a sluice that has been asked, and so has its answer, for sure. */
async function drawTwice(sluice: Sluice): Promise<void> {
  const bucket = sluice.bucket("b", { rate: "1000/s" });
  await bucket.draw();
  await bucket.peek();
}

/** How often commands of this name were called. */
async function countCalls({ operator }: OwnRedis, command: string): Promise<number> {
  const stats = await operator.info("commandstats");
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
}

describe("a Redis that may evict keys", () => {
  it.each(["allkeys-lru", "volatile-ttl", "allkeys-random"])(
    "causes one warning, with %s, in a process that only has buckets",
    async (policy) => {
      const redis = await servers.start(["--maxmemory-policy", policy]);
      const { logger, lines } = openLog();
      const sluice = redis.open({ logger });

      await drawTwice(sluice);
      await waitUntil(() => lines.length > 0, "it is said");
      await redis.operator.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await waitUntil(
        () =>
          drawTwice(sluice).then(
            () => true,
            () => false,
          ),
        "the connection is back",
      );

      expect(lines.filter((line) => line.includes("evict"))).toEqual([
        `Redis at 127.0.0.1:${redis.port} may evict keys (its maxmemory-policy is ${policy}): ` +
          "limits would forget what was used, and jobs would be lost. " +
          "Set maxmemory-policy to noeviction; see docs/guides/production/checklist.md.",
      ]);
    },
  );

  it("causes one warning in a process that only enqueues", async () => {
    const redis = await servers.start(["--maxmemory-policy", "allkeys-lru"]);
    const { logger, lines } = openLog();
    const sluice = redis.open({ logger });
    const queue = sluice.queue("jobs", { bucket: sluice.bucket("b", { rate: "1000/s" }) });

    await queue.enqueue(1);
    await waitUntil(() => lines.length > 0, "it is said");
    await drawTwice(sluice);

    expect(lines).toHaveLength(1);
  });

  it("causes a warning in a cluster", async () => {
    const cluster = await startOwnCluster();
    onTestFinished(() => cluster.stop());
    for (const { client } of [...cluster.primaries, ...cluster.replicas]) {
      await client.config("SET", "maxmemory-policy", "allkeys-lfu");
    }
    const { logger, lines } = openLog();
    await using sluice = createSluice({ redis: cluster.open(), logger });

    await drawTwice(sluice);

    await waitUntil(() => lines.length > 0, "it is said");
    expect(lines).toEqual([expect.stringContaining("Redis at a node of the cluster may evict")]);
  });

  it("is checked once per process, and not with each connection or draw", async () => {
    const redis = await servers.start();
    const { logger, lines } = openLog();
    const before = await countCalls(redis, "info");
    const sluice = redis.open({ logger });

    for (let draw = 0; draw < 5; draw++) await drawTwice(sluice);

    // One of each of two connections, whether the server is ready; and the one of `before`.
    expect((await countCalls(redis, "info")) - before).toBeLessThanOrEqual(4);
    expect(lines).toEqual([]);
  });
});

describe("a Redis that does not report its eviction policy", () => {
  it("is used without a warning", async () => {
    const redis = await servers.start(["--rename-command", "CONFIG", ""]);
    const rights = ["on", ">secret", "~*", "&*", "+@all", "-info", "-config"];
    await redis.operator.acl("SETUSER", "app", ...rights);
    const { logger, lines } = openLog();
    const url = redis.url.replace("redis://", "redis://app:secret@");
    const sluice = redis.open({ redis: url, logger });

    await drawTwice(sluice);
    await drawTwice(sluice);

    expect(lines).toEqual([]);
  });
});

import type { Redis } from "ioredis";
import { describe, expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { copyPackage } from "../../support/setup/package-copy.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { figuresOf } from "../../support/draws/steady-draws.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const CALLS = 150;
const servers = ownRedisServers();
const processes = children();
const downstream = useDownstream();

/** How many scripts the server holds. */
async function scriptsOf(client: Redis): Promise<number> {
  return Number(/number_of_cached_scripts:(\d+)/.exec(await client.info("memory"))?.[1]);
}

describe("two builds with different scripts on one Redis", () => {
  it("keep one limit together", async () => {
    const redis = await servers.start();
    const root = await copyPackage();
    const args = [redis.url, "builds", `${RATE}/s`, downstream.url, String(CALLS)];
    const start = (copy?: string) => processes.start("replica.ts", args, { root: copy });
    const replicas = [start(), start(root), start(), start(root)];
    const isReady = (): boolean => replicas.every(({ messages }) => messages.includes("ready"));
    await waitUntil(isReady, "all are ready");

    for (const replica of replicas) replica.send("go");
    await Promise.all(replicas.map((replica) => replica.success()));

    const atMs = downstream.arrivals.map(({ headers }) => Number(headers["x-slot-ms"]));
    const scripts = await scriptsOf(redis.operator);
    const figures = figuresOf(atMs, RATE);
    reportFigures("two builds with different scripts", { ...figures, scripts });
    // Each build has sent a draw of its own.
    expect(scripts).toBeGreaterThanOrEqual(2);
    expect(atMs).toHaveLength(4 * CALLS);
    expect(figures.extra).toBe(0);
  });
});

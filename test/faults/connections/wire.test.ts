import { afterEach, describe, expect, it } from "vitest";
import type { Bucket } from "sluice";
import { ownRedisServers, type OwnRedis } from "../../support/redis/own-redis.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import {
  drawSteadily,
  figuresOf,
  timesOf,
  type SteadyDraws,
} from "../../support/draws/steady-draws.ts";
import { startTcpProxy, type TcpProxy } from "../../support/servers/tcp-proxy.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const RATE = 200;
const CALLS = 500;
const servers = ownRedisServers();
let proxy: TcpProxy | undefined;
afterEach(async () => {
  await proxy?.close();
  proxy = undefined;
});

/** Two replicas behind the proxy, and one that reaches Redis directly. */
async function openBuckets(redis: OwnRedis): Promise<readonly Bucket[]> {
  proxy = await startTcpProxy(redis.port);
  const behind = { redis: `redis://127.0.0.1:${proxy.port}` };
  const replicas = [redis.open(behind), redis.open(behind), redis.open()];
  const buckets = replicas.map((sluice) => sluice.bucket("b", { rate: `${RATE}/s` }));
  await Promise.all(buckets.map((bucket) => bucket.draw()));
  return buckets;
}

function report(fault: string, { slots }: SteadyDraws) {
  const figures = figuresOf(timesOf(slots), RATE);
  reportFigures(fault, figures);
  return figures;
}

describe("a network in which replies", () => {
  it.each(["delay", "slice"] as const)(
    "suffer a %s lets no bucket exceed its cap and no call hang",
    async (mode) => {
      const redis = await servers.start();
      const buckets = await openBuckets(redis);
      proxy!.set(mode);

      const draws = drawSteadily(buckets, { callers: 30 });
      await waitUntil(() => draws.slots.length >= CALLS, "calls leave");
      await draws.stop();

      expect(draws.errors).toEqual([]);
      expect(report(`replies suffer a ${mode}`, draws).extra).toBe(0);
    },
  );

  it("break off with a reset loses no call, and gives no slot to two calls", async () => {
    const redis = await servers.start();
    const buckets = await openBuckets(redis);
    const draws = drawSteadily(buckets, { callers: 30 });

    for (let reset = 1; reset <= 10; reset++) {
      const before = draws.slots.length;
      await waitUntil(() => draws.slots.length > before + 30, "calls leave");
      proxy!.set("reset");
      await waitUntil(() => proxy!.kept > 0, "a reply ends in its middle");
      proxy!.set("pass");
    }
    await draws.stop();

    expect(draws.errors).toEqual([]);
    expect(report("replies end in their middle with a reset", draws).extra).toBe(0);
  });
});

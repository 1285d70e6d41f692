import { expect, it } from "vitest";
import { children } from "../../support/children/child.ts";
import { assertBounds, ENDPOINTS, LATENCY_MS, startFour } from "../../support/draws/tenants.ts";
import { ownRedisServers } from "../../support/redis/own-redis.ts";
import { useDownstream } from "../../support/servers/use-downstream.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const processes = children();
const servers = ownRedisServers();
const downstream = useDownstream({ latencyMs: LATENCY_MS });

it("customers and endpoints keep their limits over a crash of Redis, and lose no call", async () => {
  const redis = await servers.start(["--appendonly", "yes", "--appendfsync", "always"]);
  const replicas = await startFour(processes, {
    url: redis.url,
    prefix: "t",
    downstream,
    calls: 10,
  });
  await waitUntil(() => downstream.arrivals.length > 60, "calls are under way");

  await redis.crash();
  await Promise.all(replicas.map((replica) => replica.success()));

  expect(downstream.arrivals).toHaveLength(4 * 10 * ENDPOINTS.length);
  assertBounds(downstream);
});

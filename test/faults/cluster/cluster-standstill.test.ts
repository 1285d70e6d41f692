import type { Cluster } from "ioredis";
import { describe, expect, it, vi } from "vitest";
import {
  nameOn,
  startOwnCluster,
  type ClusterNode,
  type RedisCluster,
} from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

/** One whose nodes miss none that stands still: there is no failover. */
async function startPatientCluster(): Promise<RedisCluster> {
  const cluster = await startOwnCluster();
  for (const { client } of [...cluster.primaries, ...cluster.replicas]) {
    await client.config("SET", "cluster-node-timeout", 600_000);
  }
  return cluster;
}

/** A replica that draws on the first node, whose breaker only a new connection can bring up again. */
async function openOn(cluster: RedisCluster) {
  const [victim] = cluster.primaries as [ClusterNode];
  const redis = cluster.open();
  const copies = vi.spyOn(redis, "duplicate");
  // A failed draw opens the breaker before its command's own time limit ends the connection.
  const breaker = { failures: 1, probeMs: 3_600_000 };
  const sluice = openSluice({ redis, storeTimeoutMs: 600, breaker });
  const bucket = sluice.bucket(await nameOn(cluster, victim), { rate: "1000/s" });
  const draws = (): Promise<boolean> =>
    bucket.draw().then(
      () => true,
      () => false,
    );
  await waitUntil(draws, "it draws");
  const states: string[] = [];
  sluice.on("store", ({ state }) => void states.push(state));
  return {
    sluice,
    states,
    port: victim.port,
    /** The client of its buckets, the first that was made. */
    client: copies.mock.results[0]!.value as Cluster,
    signal: (name: NodeJS.Signals) => void process.kill(victim.server.pid!, name),
    untilDown: () =>
      waitUntil(async () => !(await draws()) && states.length > 0, "the breaker has opened"),
  };
}

describe("a primary that continues before the cluster declares it dead", () => {
  it("gets a new connection just before the client gives up the old one", async () => {
    const { sluice, states, signal, untilDown } = await openOn(await startPatientCluster());
    sluice.on("store", ({ state }) => {
      if (state === "down") signal("SIGCONT");
    });
    signal("SIGSTOP");
    await untilDown();
    const goesOnMs = performance.now();

    await waitUntil(() => states.length > 1, "the breaker has closed");

    reportFigures("a primary of a cluster goes on, its connection just to be given up", {
      recoveryMs: performance.now() - goesOnMs,
    });
    expect(states).toEqual(["down", "up"]);
  });

  it("gets a new connection if the client replaced the others in time", async () => {
    const { client, port, states, signal, untilDown } = await openOn(await startPatientCluster());
    let givenUp = 0;
    client.on("-node", ({ options }) => {
      if (options.port === port) givenUp += 1;
    });
    signal("SIGSTOP");
    await untilDown();
    await waitUntil(() => givenUp > 1, "the old connection and a new one are given up");
    signal("SIGCONT");
    const goesOnMs = performance.now();

    await waitUntil(() => states.length > 1, "the breaker has closed");

    reportFigures("a primary of a cluster goes on, others given up without effect", {
      recoveryMs: performance.now() - goesOnMs,
    });
    expect(states).toEqual(["down", "up"]);
  });
});

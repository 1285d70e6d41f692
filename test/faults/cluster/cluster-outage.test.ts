import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { expect, it, onTestFinished } from "vitest";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

const AWAY_FOR_MS = 3_000;
/** The nodes are looked for as well, by each client, at first every 50 ms. */
const MOST_PER_SECOND = 100;

it("a listener of an unreachable cluster tries its nodes at an even pace", async () => {
  const { primaries, replicas, open } = await startOwnCluster();
  const nodes = [...primaries, ...replicas];
  await openSluice({ redis: open() }).bucket("b", { rate: "100/s" }).draw();
  await waitUntil(async () => {
    const lists = await Promise.all(nodes.map(({ client }) => client.client("LIST")));
    return lists.some((list) => / sub=[1-9]/.test(String(list)));
  }, "it listens");
  let attempts = 0;
  const count = (): void => void (attempts += 1);
  subscribe("net.client.socket", count);
  onTestFinished(() => void unsubscribe("net.client.socket", count));

  for (const { client, server } of nodes) {
    client.disconnect();
    process.kill(server.pid!, "SIGKILL");
  }
  const fromMs = performance.now();
  await waitUntil(() => performance.now() > fromMs + AWAY_FOR_MS, "it is away for a while");

  const seconds = (performance.now() - fromMs) / 1_000;
  reportFigures("all of a cluster is away, who listens", {
    "attempts each second": attempts / seconds,
  });
  expect(attempts).toBeLessThanOrEqual(MOST_PER_SECOND * seconds);
});

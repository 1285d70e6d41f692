import { once } from "node:events";
import { Cluster } from "ioredis";
import { expect, it, onTestFinished } from "vitest";
import { connect } from "../../../src/stores/redis/connection.ts";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

it("a client reconnects to a cluster that lost its nodes during a name look-up", async () => {
  const { primaries } = await startOwnCluster();
  const answers: (() => void)[] = [];
  let isSlow = false;
  const found = new Cluster(
    primaries.map(({ port }) => ({ host: "localhost", port })),
    {
      lazyConnect: true,
      dnsLookup(_name, done) {
        const answer = (): void => done(null, "127.0.0.1", 4);
        if (isSlow) answers.push(answer);
        else answer();
      },
    },
  );
  const client = connect(found, "store");
  onTestFinished(() => client.disconnect());
  await client.connect();

  isSlow = true;
  client.disconnect(true);
  await waitUntil(() => answers.length > 0, "names are looked up for the next attempt");
  client.disconnect(true);
  isSlow = false;
  for (const answer of answers) answer();

  await waitUntil(() => client.status === "ready", "it is connected again");
  expect(await client.exists("none")).toBe(0);
});

it("a closed cluster also closes a node that ioredis has forgotten", async () => {
  const { primaries } = await startOwnCluster();
  const client = connect(
    new Cluster(primaries.map(({ port }) => ({ port, host: "127.0.0.1" }))),
    "store",
  );
  onTestFinished(() => client.disconnect());
  await client.connect();
  await client.exists("none");
  const node = (client as Cluster).nodes("master").find(({ status }) => status === "ready")!;
  // As the forerunner of a node does that ends late: both go by one name.
  node.emit("end");
  expect((client as Cluster).nodes("master")).not.toContain(node);

  const hasEnded = once(client, "end");
  client.disconnect();

  await waitUntil(() => node.status === "end", "it has ended");
  await hasEnded;
});

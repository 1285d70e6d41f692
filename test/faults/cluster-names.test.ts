import { Cluster } from "ioredis";
import { expect, it, onTestFinished } from "vitest";
import { connect } from "../../src/redis/connection.ts";
import { startOwnCluster } from "../support/cluster.ts";
import { waitUntil } from "../support/wait-until.ts";

it("a cluster whose nodes are lost while their names are looked up is connected to again", async () => {
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

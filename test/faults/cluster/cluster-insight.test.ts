import { describe, expect, it } from "vitest";
import { ChangedError } from "sluice";
import { rejectionOf } from "../../support/async/rejection.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import { startOwnCluster } from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";

describe("in a cluster, an operator", () => {
  it("sees the buckets of all nodes, changes them, and undoes the changes", async () => {
    const cluster = await startOwnCluster();
    const [a, b] = [0, 1].map(() => openSluice({ redis: cluster.open(), prefix: "s" }));
    const names = Array.from({ length: 12 }, (_, at) => `b${at}`);
    await Promise.all(names.map((name) => a!.bucket(name, { rate: "100/s" }).draw()));
    const spread = a!.bucket("spread", { perKey: { rate: "10/s" } });
    const keys = Array.from({ length: 20 }, (_, at) => `k${at}`);
    await Promise.all(keys.map((key) => spread.draw({ key })));

    await waitUntil(async () => (await b!.overview()).buckets.length === 13, "all are told of");
    await waitUntil(async () => (await spread.status()).actualPerSecond === 2, "calls are counted");

    for (const name of names) a!.queue(name, { bucket: spread });
    a!.worker(a!.queue("b3", { bucket: spread }), () => undefined);
    await waitUntil(async () => (await b!.overview()).workers.length === 1, "queues are told of");
    const { queues } = await b!.overview();
    expect(queues.map(({ name }) => name)).toEqual(names.toSorted());
    expect(queues.find(({ name }) => name === "b3")).toMatchObject({
      bucket: "spread",
      workers: 1,
    });

    const [whole, brief] = [await b!.overview(), await b!.overview({ brief: true })];
    for (const [at, { name, policy, capPerSecond, source }] of whole.buckets.entries()) {
      expect(brief.buckets[at]).toMatchObject({ name, policy, capPerSecond, source });
    }
    expect(brief.buckets.map(({ policy }) => policy)).toContain("per key 10/s");

    const { generation } = await spread.peek();
    await spread.configure({ perKey: { rate: "5/s" } }, { by: "ann", generation });
    expect(await rejectionOf(spread.pause({ generation }))).toBeInstanceOf(ChangedError);
    expect(await spread.status()).toMatchObject({ source: "override", setBy: { by: "ann" } });
    await spread.undo();
    for (const key of ["k1", "k2", "k3"]) {
      expect(await spread.peek({ key })).toMatchObject({ policyFrom: "code" });
    }
    await b!.bucket("b3", { rate: "100/s" }).pause({ by: "bob" });
    const changes = await a!.changes();
    expect(changes.map(({ bucket, action, by }) => [bucket, action, by]).slice(0, 1)).toEqual([
      ["b3", "pause", "bob"],
    ]);
    expect(changes).toHaveLength(4);
  });
});

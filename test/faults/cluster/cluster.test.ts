import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Sluice } from "sluice";
import { connect } from "../../../src/stores/redis/connection.ts";
import { createNotifications } from "../../../src/stores/redis/pubsub.ts";
import { startCluster, type RedisCluster } from "../../support/redis/cluster.ts";
import { openSluice } from "../../support/redis/for-one-test.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

const openOn = (prefix: string): Sluice =>
  openSluice({ redis: cluster.open(), prefix, storeTimeoutMs: 30_000 });

/** How many keys of this form each primary has. */
function counts(pattern: string): Promise<number[]> {
  return Promise.all(
    cluster.primaries.map(async ({ client }) => (await client.keys(pattern)).length),
  );
}

describe("in a cluster", () => {
  it("buckets spread over all nodes", async () => {
    const sluice = openOn("spread");
    const names = Array.from({ length: 300 }, (_, index) => `tenant ${index}`);

    await Promise.all(names.map((name) => sluice.bucket(name, { rate: "10/s" }).draw()));
    const perNode = await counts("spread:{*}:state");

    reportFigures("300 buckets on three nodes", {
      "fewest on a node": Math.min(...perNode),
      "most on a node": Math.max(...perNode),
    });
    expect(perNode.reduce((sum, count) => sum + count)).toBe(300);
    for (const count of perNode) expect(count).toBeGreaterThan(60);
  });

  it("queues spread over all nodes", async () => {
    const sluice = openOn("queues");
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    // Each has a connection of its own to each node.
    const names = Array.from({ length: 30 }, (_, index) => `queue ${index}`);

    for (const name of names) await sluice.queue<number>(name, { bucket }).enqueue(1);
    const perNode = await counts("queues:{*}:meta");

    reportFigures("30 queues on three nodes", {
      "fewest on a node": Math.min(...perNode),
      "most on a node": Math.max(...perNode),
    });
    expect(perNode.reduce((sum, count) => sum + count)).toBe(30);
    for (const count of perNode) expect(count).toBeGreaterThan(0);
  });

  it("a bucket serves keys, leases, costs, tries and changes as on one server", async () => {
    const sluice = openOn("all");
    const bucket = sluice.bucket("b", {
      rate: "1000/s",
      concurrency: 5,
      perKey: { rate: "100/s", concurrency: 2 },
    });

    const slots = await Promise.all(
      ["a:1", "b", "c"].map((key) => bucket.draw({ key }).then((slot) => (slot.release(), slot))),
    );
    const decision = await bucket.tryDraw({ key: "d" });
    await bucket.pause({ forMs: 1 });
    await bucket.resume();
    const status = await bucket.peek({ key: "a:1" });

    expect(slots).toHaveLength(3);
    expect(decision.allowed).toBe(true);
    expect(status).toBeDefined();
  });

  it("workers do a queue's jobs, and replayed dead letters run again", async () => {
    const sluice = openOn("jobs");
    const bucket = sluice.bucket("b", { rate: "1000/s", perKey: { rate: "500/s" } });
    const queue = sluice.queue<number>("jobs", { bucket });
    const done: number[] = [];
    let isRefused = true;
    sluice.worker(queue, async ({ data }) => {
      if (data === 3 && isRefused) throw new Error("not yet");
      done.push(data);
    });

    await queue.enqueueMany([1, 2], { key: "a" });
    const third = await queue.enqueue(3, { key: "b", attempts: 1 });
    await waitUntil(async () => (await queue.failed()).length === 1, "the third has failed");
    isRefused = false;
    await queue.replay(third.id);
    await waitUntil(() => done.length === 3, "all are done");

    expect(done.toSorted((a, b) => a - b)).toEqual([1, 2, 3]);
    expect(await queue.failed()).toEqual([]);
  });

  it("jobs wait for jobs of queues on other nodes, also in a group", async () => {
    const sluice = openOn("flows");
    const bucket = sluice.bucket("b", { rate: "1000/s" });
    const queues = Array.from({ length: 8 }, (_, index) =>
      sluice.queue<string, unknown, string>(`step ${index}`, { bucket }),
    );
    const runs: string[] = [];
    for (const queue of queues) {
      sluice.worker(queue, async ({ data }, { parents }) => {
        runs.push(data);
        return (await parents()).length;
      });
    }
    const [first, ...others] = queues;
    const root = await first!.enqueue("root", { delayMs: 200 });
    const middle = await Promise.all(
      others.map((queue) => queue.enqueue("middle", { after: [root], key: "acme" })),
    );
    const group = await first!.enqueueGroup([], {
      then: { queue: others[0], data: "last", options: { after: middle } },
      open: true,
    });
    for (const queue of queues) await queue.group(group.final).add(["item"]);
    await group.close();

    expect(await group.final.finished()).toBe(15);
    expect(runs.at(-1)).toBe("last");
    expect(runs.toSorted()).toEqual([
      ...Array.from({ length: 8 }, () => "item"),
      "last",
      ...middle.map(() => "middle"),
      "root",
    ]);
    expect((await counts("flows:{*}:meta")).filter((count) => count > 0)).toHaveLength(3);
  });

  it("a node that is not connected yet answers all of the first requests", async () => {
    const names = Array.from({ length: 5 }, (_, index) => `first ${index}`);
    const queues = names.map((name) => {
      const sluice = openOn("first");
      return sluice.queue<number>(name, { bucket: sluice.bucket("b", { rate: "1000/s" }) });
    });

    const asked = queues.flatMap((queue) => [1, 2, 3, 4, 5].map((job) => queue.enqueue(job)));
    const outcomes = await Promise.allSettled(asked);

    expect(outcomes.filter(({ status }) => status === "rejected")).toEqual([]);
  });

  it("change notifications of a bucket reach all replicas, whatever node they listen at", async () => {
    const prefix = "news";
    const listeners = Array.from({ length: 6 }, () => {
      const heard: string[] = [];
      const calls = createNotifications(() => connect(cluster.open(), "subscriber"), prefix);
      calls.listen("asker", (bucket) => void heard.push(bucket));
      return { heard, calls };
    });
    const bucket = openOn(prefix).bucket("b", { rate: "10/s" });

    await waitUntil(async () => {
      await bucket.pause({ forMs: 1 });
      return listeners.every(({ heard }) => heard.includes("b"));
    }, "all have heard of it");

    expect(listeners.filter(({ heard }) => heard.some((name) => name !== "b"))).toEqual([]);
    for (const { calls } of listeners) calls.close();
  });

  it("a blocking call on a copied connection rejects when the connection is closed", async () => {
    const client = connect(cluster.open(), "worker");
    const copy = client.duplicate();
    await copy.ping();
    const blocked = copy.blpop("none", 0);

    client.disconnect();

    await expect(blocked).rejects.toThrow("Connection is closed.");
    await waitUntil(() => copy.status === "end", "the copy is closed too");
  });
});

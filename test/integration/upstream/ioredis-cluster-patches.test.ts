/**
 * Why each patch of `src/stores/redis/ioredis/` is there, shown on clusters of ioredis as they are without them. Such a test
 * fails when an upgrade mends the fault, or renames what the patch takes hold of: then the patch can go, or must follow.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { Cluster, Redis } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from "vitest";
import { portOf } from "../../support/redis/for-one-test.ts";
import { startRedis } from "../../support/redis/local-redis.ts";
import { freePort } from "../../support/redis/redis-port.ts";
import { rejectionOf } from "../../support/async/rejection.ts";
import { closeAfterTest, isSettled, nextEvent } from "../../support/servers/unpatched.ts";
import { waitUntil } from "../../support/async/wait-until.ts";
import type { LocalRedis } from "../../support/redis/private-redis.ts";

const HOST = "127.0.0.1";

/** A cluster of one node, which serves all slots. */
let server: LocalRedis;
let node: { readonly host: string; readonly port: number };

beforeAll(async () => {
  const args = ["--cluster-enabled", "yes", "--cluster-announce-ip", HOST];
  server = await startRedis({ fresh: true, args });
  node = { host: HOST, port: portOf(server) };
  const client = new Redis(node);
  await client.cluster("ADDSLOTSRANGE", 0, 16_383);
  await waitUntil(
    async () => (await client.cluster("INFO")).includes("cluster_state:ok"),
    "the cluster is up",
  );
  client.disconnect();
});
afterAll(() => server.stop());

describe("closing.ts", () => {
  it("closeWithNodes: a node whose forerunner ends late is left open", async () => {
    const cluster = closeAfterTest(new Cluster([node]));
    await cluster.ping();
    const known = cluster.nodes("master").find(({ status }) => status === "ready")!;
    onTestFinished(() => known.disconnect());

    known.emit("end");
    const hasEnded = nextEvent(cluster, "end");
    cluster.disconnect();
    await hasEnded;

    expect(known.status).toBe("ready");
  });
});

describe("cluster.ts", () => {
  it("connectUntilClosed: ioredis gives up an attempt whose old connections end while it resolves names", async () => {
    const answers: (() => void)[] = [];
    let isSlow = false;
    const cluster = closeAfterTest(
      new Cluster([{ host: "localhost", port: node.port }], {
        clusterRetryStrategy: () => 1,
        dnsLookup(_name, done) {
          const answer = (): void => done(null, HOST, 4);
          if (isSlow) answers.push(answer);
          else answer();
        },
      }),
    );
    await cluster.ping();
    let attempts = 0;
    let aborted: Promise<unknown> | undefined;
    const connect = cluster.connect.bind(cluster);
    cluster.connect = () => {
      attempts += 1;
      const attempt = connect();
      aborted = rejectionOf(attempt);
      return attempt;
    };

    isSlow = true;
    cluster.disconnect(true);
    await waitUntil(() => answers.length > 0, "names are resolved for the next attempt");
    cluster.disconnect(true);
    isSlow = false;
    for (const answer of answers) answer();

    expect(await aborted).toMatchObject({ message: "Connection is aborted" });
    await nextTurn();
    expect([cluster.status, attempts]).toEqual(["disconnecting", 1]);
  });

  it("pauseBetweenNodes: ioredis takes the next node to subscribe on at once", async () => {
    const cluster = closeAfterTest(new Cluster([node]));
    await cluster.ping();
    const subscriber = Reflect.get(cluster, "subscriber") as {
      onSubscriberEnd: () => void;
      getInstance(): Redis;
    };
    const choose = vi.spyOn(subscriber, "onSubscriberEnd");
    subscriber.onSubscriberEnd();
    const chosen = subscriber.getInstance();

    chosen.emit("end");

    expect(choose).toHaveBeenCalledTimes(2);
    expect(subscriber.getInstance()).not.toBe(chosen);
  });

  it("refuseWhileAway: without an offline queue, a node that is being connected refuses commands", async () => {
    const settings = {
      enableOfflineQueue: false,
      // Else the cluster is ready only once it has asked this node.
      enableReadyCheck: false,
      retryDelayOnFailover: 0,
    };
    const cluster = closeAfterTest(new Cluster([node], settings));
    await nextEvent(cluster, "ready");

    const answers = await Promise.allSettled([cluster.get("a"), cluster.get("a")]);

    expect(answers.map(({ status }) => status)).toContain("rejected");
  });

  it("refuseWhileAway: with an offline queue, commands wait while the cluster is unreachable", async () => {
    const nowhere = { host: HOST, port: await freePort(HOST) };
    const cluster = closeAfterTest(new Cluster([nowhere]));
    await nextEvent(cluster, "reconnecting");

    const waiting = cluster.get("a");

    expect(await isSettled(waiting)).toBe(false);
    waiting.catch(() => undefined);
  });
});

describe("per-server.ts", () => {
  it("onEachServer: a cluster announces a node before it connects to it", async () => {
    const cluster = closeAfterTest(new Cluster([node], { lazyConnect: true }));
    const states: string[] = [];
    cluster.on("+node", ({ status }: Redis) => states.push(status));

    await cluster.connect();

    expect(states).toEqual(["wait"]);
  });
});

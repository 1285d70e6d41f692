import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  budget,
  createSluice,
  leakyBucket,
  type Bucket,
  type BucketOptions,
  type Sluice,
} from "sluice";
import { firstOfText } from "../../../src/core/key-path.ts";
import { EXCESS, type Passed } from "../../support/draws/bounds.ts";
import { startCluster, type RedisCluster } from "../../support/redis/cluster.ts";
import { reportFigures } from "../../support/docs/report-figures.ts";
import { waitUntil } from "../../support/async/wait-until.ts";

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

let opened: Sluice[] = [];
afterEach(async () => {
  await Promise.all(opened.map((sluice) => sluice.close()));
  opened = [];
});

function openSluice(prefix: string): Sluice {
  const sluice = createSluice({ redis: cluster.open(), prefix, storeTimeoutMs: 20_000 });
  opened.push(sluice);
  return sluice;
}

/** The same bucket at two replicas. */
function twoReplicas(prefix: string, options: BucketOptions): readonly [Bucket, Bucket] {
  return [openSluice(prefix).bucket("b", options), openSluice(prefix).bucket("b", options)];
}

/** How many keys of this form each primary has. */
function counts(pattern: string): Promise<number[]> {
  return Promise.all(
    cluster.primaries.map(async ({ client }) => (await client.keys(pattern)).length),
  );
}

const keys = Array.from({ length: 300 }, (_, index) => `tenant ${index}`);
const some = keys.slice(0, 40);

describe("in a cluster, the keys of a bucket", () => {
  it("spread over all nodes if all limits are per key", async () => {
    const bucket = openSluice("spread").bucket("b", { perKey: { rate: "10/s" } });

    await Promise.all(keys.map((key) => bucket.draw({ key })));
    const perNode = await counts("spread:{b:*}:key:*:state");

    reportFigures("300 keys on three nodes", {
      "fewest on a node": Math.min(...perNode),
      "most on a node": Math.max(...perNode),
    });
    expect(perNode.reduce((sum, count) => sum + count)).toBe(300);
    for (const count of perNode) expect(count).toBeGreaterThan(60);
  });

  it("spread by the first name of their path, with all lower levels in the same slot", async () => {
    const bucket = openSluice("levels").bucket("b", {
      perKey: [{ rate: "10/s" }, { rate: "10/s" }],
    });
    const paths = keys.flatMap((key) => ["x", "y"].map((endpoint) => [key, endpoint]));

    await Promise.all(paths.map((key) => bucket.draw({ key })));
    const perNode = await Promise.all(
      cluster.primaries.map(({ client }) => client.keys("levels:{b:*}:key:*:state")),
    );

    const slots = new Map<string, Set<string>>();
    for (const name of perNode.flat()) {
      const [, tag, text] = /\{(.*?)\}:key:(.*):state$/.exec(name)!;
      const first = firstOfText(text!);
      slots.set(first, (slots.get(first) ?? new Set()).add(tag!));
    }
    expect(perNode.flat()).toHaveLength(keys.length + paths.length);
    expect(slots.size).toBe(keys.length);
    expect([...slots.values()].map(({ size }) => size)).toEqual(keys.map(() => 1));
    for (const { length } of perNode) expect(length).toBeGreaterThan(3 * 60);
  });

  it("lose a grant that is undone, in whichever slot it is", async () => {
    const usd = budget({ unit: "usd", amount: 1, per: "month" });
    const bucket = openSluice("grants").bucket("b", { perKey: { limits: [usd] } });
    const given = keys.slice(0, 8);

    for (const key of given) {
      await bucket.grant({ usd: 5 }, { key, reason: "test" });
      await bucket.undo();
    }

    const left = await Promise.all(given.map((key) => bucket.budgets({ key })));
    expect(left.map(([state]) => state!.amount)).toEqual(given.map(() => 1));
  });

  it("share one slot if they are named, and one script counts them", async () => {
    const bucket = openSluice("named").bucket("b", {
      perKey: { address: { rate: "1/h" }, email: { rate: "1/h" } },
    });

    await Promise.all(
      some.map((key) => bucket.draw({ keys: { address: key, email: `${key}@x` } })),
    );
    const again = await bucket.tryDraw({ keys: { address: "new", email: `${some[0]}@x` } });

    expect(again.limitedBy).toBe("1/h (email)");
    expect((await counts("named:{b}:key:*:state")).filter((count) => count > 0)).toHaveLength(1);
  });

  it("share one slot if they share a limit", async () => {
    const bucket = openSluice("shared").bucket("b", { rate: "1000/s", perKey: { rate: "10/s" } });

    await Promise.all(some.map((key) => bucket.draw({ key })));
    const perNode = await counts("shared:{b}:key:*:state");

    expect(perNode.toSorted((a, b) => a - b)).toEqual([0, 0, some.length]);
  });

  it("keep their limits over all replicas, in every window", async () => {
    const replicas = twoReplicas("limits", { perKey: { rate: "20/s", burst: 3 } });
    const passed = new Map(some.map((key) => [key, [] as Passed[]]));

    const calls = some.flatMap((key) =>
      Array.from({ length: 20 }, async (_, call) => {
        const { atMs } = await replicas[call % 2]!.draw({ key });
        passed.get(key)!.push({ slotUs: Math.round(atMs * 1_000), cost: 1 });
      }),
    );
    await Promise.all(calls);

    const excessOf = EXCESS["leaky-bucket"]!;
    const limit = leakyBucket("20/s", { burst: 3 });
    for (const each of passed.values()) {
      expect(each).toHaveLength(20);
      expect(excessOf(limit, each)).toBeLessThanOrEqual(0);
    }
  });

  it("are paused and resumed together by any replica", async () => {
    const [here, there] = twoReplicas("pause", { perKey: { rate: "1000/s" } });
    await there.tryDraw({ key: some[0]! });

    await here.pause();
    const decisions = await Promise.all(some.map((key) => there.tryDraw({ key })));
    const waiting = some.map((key) => there.draw({ key }));
    await here.resume();

    expect(decisions.filter(({ allowed }) => allowed)).toEqual([]);
    expect(await Promise.all(waiting)).toHaveLength(some.length);
  });

  it("get a new policy together from any replica", async () => {
    const policy = (burst: number): BucketOptions => ({ perKey: { rate: "1/h", burst } });
    const [here, there] = twoReplicas("configure", policy(5));
    await Promise.all(some.slice(0, 20).map((key) => there.tryDraw({ key })));

    await here.configure({ perKey: { rate: "1/h", burst: 9 } });
    const decisions = await Promise.all(some.map((key) => there.tryDraw({ key })));

    const capacities = decisions.map(({ limits }) => limits[0]!.capacity);
    expect(new Set(capacities)).toEqual(new Set([9]));
    expect(await there.peek({ key: some[7]! })).toMatchObject({ policyFrom: "configured" });
  });

  it("get the leases that other replicas release", async () => {
    const [here, there] = twoReplicas("leases", { perKey: { concurrency: 1 } });
    const running = await Promise.all(some.map((key) => here.draw({ key })));
    const waiting = some.map((key) => there.draw({ key }));
    await waitUntil(() => there.waiting === some.length, "all wait");

    for (const slot of running) slot.release();
    const slots = await Promise.all(waiting);

    expect(slots.map(({ key, bucket }) => [bucket, key])).toEqual(some.map((key) => ["b", key]));
    for (const slot of slots) slot.release();
  });

  it("also pace the jobs of a queue", async () => {
    const sluice = openSluice("jobs");
    const bucket = sluice.bucket("b", { perKey: { rate: "100/s" } });
    const queue = sluice.queue<string>("jobs", { bucket });
    const done: string[] = [];
    sluice.worker(queue, async ({ data, key }) => {
      await bucket.throttled(async () => {}, { key: key! })();
      done.push(data);
    });

    for (const key of some) await queue.enqueueMany([key, key], { key });
    await waitUntil(() => done.length === 2 * some.length, "all are done");

    expect(done.toSorted()).toEqual(some.flatMap((key) => [key, key]).toSorted());
    expect((await counts("jobs:{b:*}:key:*:state")).every((count) => count > 0)).toBe(true);
  });
});

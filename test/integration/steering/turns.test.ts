import { beforeEach, describe, expect, inject, it } from "vitest";
import { type Bucket, type BucketOptions, type DrawOptions } from "sluice";
import { waitUntil } from "../../support/async/wait-until.ts";
import { runCli } from "../../support/children/run-cli.ts";
import { openBoards } from "../../support/server/boards.ts";
import { pretendWorker } from "../../support/jobs/outlook.ts";
import { ACT, ask, openServers } from "../../support/server/open-server.ts";
import { realSluices } from "../../support/setup/real-sluice.ts";

const sluices = realSluices();
const servers = openServers();
const boards = openBoards();

/** So slow that no call but the first starts before the test ends. */
const SLOW = { rate: "1/h" } as const;
const EVEN = { ...SLOW, fair: true } as const;
const FAIR = { ...SLOW, fair: { weights: { gold: 2 }, floors: { small: "1/d" } } } as const;

/** Starts calls that wait until the sluice is closed. */
function holdCalls(bucket: Bucket, ...calls: readonly DrawOptions[]): void {
  for (const options of calls) bucket.draw(options).catch(() => {});
}

/** A bucket whose only slot is gone, in a process of its own for each of `replicas`. */
async function openBuckets(policy: BucketOptions, replicas = 1): Promise<Bucket[]> {
  const buckets = Array.from({ length: replicas }, () => sluices.open().bucket("api", policy));
  await buckets[0]!.draw();
  return buckets;
}

const keysOf = async (bucket: Bucket) => (await bucket.peek()).turns.map(({ key }) => key);

async function haveTurns(bucket: Bucket, count: number): Promise<void> {
  const haveAll = async () => (await bucket.peek()).turns.length === count;
  await waitUntil(haveAll, `${count} keys have pending calls`);
}

describe("the turns of a bucket", () => {
  it("are those of all processes, with weights and floors", async () => {
    const [here, there] = await openBuckets(FAIR, 2);
    expect((await here!.peek()).turns).toEqual([]);

    holdCalls(here!, { key: "gold" }, { key: "gold" }, {});
    holdCalls(there!, { key: ["acme", "orders"] }, { key: "small" });
    await haveTurns(here!, 4);

    const { turns } = await here!.peek();
    const byKey = turns.toSorted((a, b) => String(a.key).localeCompare(String(b.key)));
    const plain = { keys: undefined, floor: undefined, goesFirst: undefined };
    const waitedMs = expect.any(Number);
    expect(byKey).toEqual([
      { ...plain, key: ["acme", "orders"], weights: [1, 1], waitedMs },
      { ...plain, key: "gold", weights: [2], waitedMs },
      { ...plain, key: "small", weights: [1], floor: "1/d", goesFirst: "floor", waitedMs },
      { ...plain, key: undefined, weights: [1], waitedMs },
    ]);
    expect(turns[0]!.key).toBe("small");
    expect(await keysOf(there!)).toEqual(await keysOf(here!));
  });

  it("begin with critical calls", async () => {
    const [bucket] = await openBuckets(FAIR);
    holdCalls(bucket!, { key: "gold" }, { key: "small" }, { key: "acme", priority: "critical" });
    await haveTurns(bucket!, 3);

    const [first, second] = (await bucket!.peek()).turns;

    expect([first!.key, first!.goesFirst]).toEqual(["acme", "critical"]);
    expect([second!.key, second!.goesFirst]).toEqual(["small", "floor"]);
  });

  it("show how long each key waits, if several keys share a position", async () => {
    const [bucket] = await openBuckets(EVEN);
    holdCalls(bucket!, { key: "early" });
    await haveTurns(bucket!, 1);
    const waitsAWhile = async () => (await bucket!.peek()).turns[0]!.waitedMs >= 20;
    await waitUntil(waitsAWhile, "the first call waits for 20 ms");
    holdCalls(bucket!, { key: "late" }, { key: "later" });

    await haveTurns(bucket!, 3);
    const [early, late, later] = (await bucket!.peek()).turns;

    expect([early!.key, late!.key, later!.key]).toEqual(["early", "late", "later"]);
    expect(early!.waitedMs - late!.waitedMs).toBeGreaterThanOrEqual(19);
    expect(late!.waitedMs).toBeGreaterThanOrEqual(later!.waitedMs);
  });

  it("show the first 32 keys only", async () => {
    const buckets = await openBuckets(EVEN, 4);
    for (const [number, bucket] of buckets.entries()) {
      for (let each = 0; each < 20; each++) holdCalls(bucket, { key: `${number}-${each}` });
    }

    await haveTurns(buckets[0]!, 32);
    const keys = new Set(await keysOf(buckets[1]!));
    expect(keys.size).toBe(32);
  });

  it.each<[string, BucketOptions]>([
    ["serves calls as they arrive", { ...SLOW, fair: false }],
    ["has no limit that keys share", { perKey: SLOW }],
  ])("are empty if the bucket %s", async (_what, policy) => {
    const bucket = sluices.open().bucket("api", policy);
    await bucket.draw({ key: "a" });
    holdCalls(bucket, { key: "a" }, { key: "a" });
    await waitUntil(() => bucket.waiting === 2, "calls wait");

    const { turns, limits } = await bucket.peek({ key: "a" });

    expect(limits[0]!.remaining).toBe(0);
    expect(turns).toEqual([]);
  });
});

describe("an operator", () => {
  it("reads over HTTP, from a shell and on the board whose turn is next", async () => {
    const [bucket] = await openBuckets(FAIR);
    holdCalls(bucket!, { key: "gold" }, { key: "small" }, {});
    await haveTurns(bucket!, 3);
    const isReported = async () => (await bucket!.status()).waiting.total === 3;
    await waitUntil(isReported, "the calls are reported");
    const { url } = await servers.open(sluices.open(), { insecureLocal: true });
    const sentence =
      "3 keys with pending calls take turns. The next call is of small (it is within the floor of its key).";

    const why = await ask(`${url}/api/v1/buckets/api/why`);
    expect(why.json.reasons).toContain(sentence);
    const { turns } = (await ask(`${url}/api/v1/buckets/api`)).json;
    expect(turns[0]).toMatchObject({ key: "small", weights: [1], floor: "1/d" });
    expect(turns).toHaveLength(3);

    const args = ["--prefix", sluices.prefix(), "bucket", "api"];
    const shell = await runCli(args, { REDIS_URL: inject("redisUrl") });
    expect(shell.code).toBe(0);
    expect(shell.out).toContain(sentence);
    expect(shell.out).toMatch(/NEXT TURN +WEIGHT +FLOOR +GOES FIRST +OLDEST CALL WAITS FOR/);
    expect(shell.out).toMatch(/\nsmall +1 +1\/d +floor +\d/);
    expect(shell.out).toMatch(/\ngold +2 +- +- +\d/);

    const { page, errors } = await boards.open(`${url}/#/bucket/api`);
    const row = page.locator("tr", { hasText: "within its floor" });
    await row.getByText("small").waitFor();
    await page.locator("tr", { hasText: "calls without a key" }).waitFor();
    expect(errors).toEqual([]);
  });

  it("changes weights and floors for all processes, and takes them back", async () => {
    const [bucket] = await openBuckets({ rate: "10/s" });
    const { url } = await servers.open(sluices.open(), { tokens: [{ token: ACT, role: "act" }] });
    const post = (path: string, body: object) =>
      ask(`${url}/api/v1/buckets/api/${path}`, { token: ACT, body });

    const set = await post("configure", {
      policy: { fair: { weights: { gold: 3 }, floors: { small: "2/s" } } },
      reason: "contract",
    });
    expect(set.json.status.policy).toBe("10/s; weights gold 3; floors small 2/s");
    const bad = await post("configure", { policy: { fair: { floors: { small: "11/s" } } } });
    expect(bad.status).toBe(400);
    expect(bad.text).toContain("fair.floors");
    const slower = await post("configure", { policy: { rate: "5/s" } });
    expect(slower.json.status.policy).toBe("5/s; weights gold 3; floors small 2/s");

    await post("undo", {});
    await post("undo", {});
    expect((await bucket!.peek()).policy).toBe("10/s");
  });
});

describe("a job", () => {
  beforeEach(() => pretendWorker(sluices.prefix(), "jobs"));

  it("waits for the turns of another key, or for its own turn at the limit", async () => {
    const sluice = sluices.open();
    const bucket = sluice.bucket("api", EVEN);
    await bucket.draw();
    const queue = sluice.queue<number>("jobs", { bucket });
    const other = await queue.enqueue(1, { key: "bolt" });
    const own = await queue.enqueue(2, { key: "acme" });
    expect(await other.explain()).toMatchObject({ waitsFor: "limit", limit: "1/h" });

    holdCalls(bucket, { key: "acme" });
    await haveTurns(bucket, 1);

    expect(await other.explain()).toMatchObject({ waitsFor: "turns", limit: "1/h" });
    expect(await own.explain()).toMatchObject({ waitsFor: "limit", limit: "1/h" });
  });
});

import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { describe, expect, inject, it } from "vitest";
import { concurrency, leakyBucket } from "../../../src/core/policy/limit-makers.ts";
import type { Policy } from "../../../src/core/policy/policy.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { runScript } from "../../../src/stores/redis/scripts/script.ts";
import { leasesRelease } from "../../../src/stores/redis/scripts/bucket/leases.ts";
import { createManualClock, type ManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { createPinnedRedisStore } from "../../support/draws/pinned-redis-store.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const policy = policyOf({ limits: [concurrency(2, { leaseMs: 5_000 })] });

describe("a caller that waits for a lease", () => {
  const request = (replica: string) => ({
    bucket: "b",
    asker: replica,
    terms: { ...policy, version: 0 },
    scopes: [],
  });

  /** Who is woken when these of two leases are given back so many ms later, by the order in which they asked. */
  const WOKEN = [
    [[1], 0, ["x"]],
    [[1, 2], 0, ["x", "y"]],
    // Two of three have not asked again for 1.5 s, so they have gone.
    [[1, 2], 1_480, ["z"]],
  ] as const;

  it.each(WOKEN)(
    "is woken in memory for what is free: %j after %i ms",
    async (leases, ms, names) => {
      const clock = createManualClock();
      const store = createMemoryStore(clock.nowUs);
      const woken: string[] = [];
      for (const name of "xyz") store.listen(name, () => woken.push(name));
      await fill(store, clock);
      clock.advanceMs(ms);

      await store.release({ ...request("h"), leases });

      expect(woken).toEqual(names);
    },
  );

  it.each(WOKEN)(
    "is woken in Redis for what is free: %j after %i ms",
    async (leases, ms, names) => {
      const redis = new Redis(inject("redisUrl"));
      const clock = createManualClock();
      const prefix = `t${randomUUID()}`;
      await fill(createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs }), clock);
      clock.advanceMs(ms);
      const told = { ...leasesRelease, decode: (reply: unknown) => reply };

      const woken = await runScript(redis, told, {
        ...request("h"),
        leases,
        prefix,
        pinnedUs: clock.nowUs(),
      });
      await redis.quit();

      expect(woken).toEqual(names);
    },
  );

  it("does not get back, in memory, a lease that it passes on", async () => {
    const clock = createManualClock();
    const store = createMemoryStore(clock.nowUs);
    await fill(store, clock);
    await store.release({ ...request("h"), leases: [1] });
    const woken: string[] = [];
    for (const name of "xyz") store.listen(name, () => woken.push(name));

    await store.release({ ...request("x"), leases: [] });

    expect(woken).toEqual(["y"]);
  });

  it("does not get back, in Redis, a lease that it passes on", async () => {
    const redis = new Redis(inject("redisUrl"));
    const clock = createManualClock();
    const prefix = `t${randomUUID()}`;
    const store = createPinnedRedisStore(redis, { prefix, nowUs: clock.nowUs });
    await fill(store, clock);
    await store.release({ ...request("h"), leases: [1] });
    const told = { ...leasesRelease, decode: (reply: unknown) => reply };

    const passed = { ...request("x"), leases: [], prefix, pinnedUs: clock.nowUs() };
    const woken = await runScript(redis, told, passed);
    await redis.quit();

    expect(woken).toEqual(["y"]);
  });

  /** One holds both leases, and three wait, one after the other. */
  async function fill(store: Store, clock: ManualClock): Promise<void> {
    const [holder, ...waiters] = "hxyz"
      .split("")
      .map((name) => createTestReplica(store, { bucket: "b", name, policy }));
    for (const replica of [holder!, holder!, ...waiters]) {
      await replica.draw(1);
      clock.advanceMs(10);
    }
  }
});

describe.each(storeKinds())("a call whose lease was drawn before, in $name,", ({ open }) => {
  it("takes no new lease, and does not wait behind callers that need one", async () => {
    const limits = [leakyBucket("1/s", { burst: 10 }), concurrency(1, { leaseMs: 5_000 })];
    const { store, clock } = open();
    const [holder, waiter] = ["h", "w"].map((name) =>
      createTestReplica(store, { bucket: "b", name, policy: policyOf({ limits }) }),
    );
    await holder!.draw(1);
    await waiter!.draw(1);
    clock.advanceMs(1);

    const drawn = await holder!.drawAll([{ wanted: 1, isUnderWay: true }, { wanted: 1 }]);
    await holder!.release([1]);

    expect(drawn.granted.map(({ slotsUs }) => slotsUs.length)).toEqual([1, 0]);
    expect((await holder!.peek()).statuses[0]!.remaining).toBe(8);
    expect(slotsOf(await waiter!.draw(1))).toHaveLength(1);
  });
});

describe.each(storeKinds())("under a limit that leaves 0 calls at once, in $name,", ({ open }) => {
  const none = withCount(0);
  const replicaOf = ({ store }: PinnedStore, given: Policy) =>
    createTestReplica(store, { bucket: "b", name: "a", policy: given });

  it("a call waits as in a full bucket, and a try learns that the time is unknown", async () => {
    const replica = replicaOf(open(), none);

    const drawn = await replica.draw(1);
    const tried = await replica.drawAll([{ wanted: 1, isTry: true }]);

    expect([...slotsOf(drawn), ...slotsOf(tried)]).toEqual([]);
    expect(drawn.granted[0]).toMatchObject({ notBeforeUs: 0, bindsAt: 1 });
    expect(tried.granted[0]).toMatchObject({ notBeforeUs: Infinity, bindsAt: 1 });
  });

  it("a lease that a call holds is renewed, and released", async () => {
    const pinned = open();
    const [holder, limited] = [replicaOf(pinned, policy), replicaOf(pinned, none)];
    await holder.draw(1);
    await holder.draw(1);
    pinned.clock.advanceMs(4_000);
    const lost = await limited.renew([1, 2]);
    pinned.clock.advanceMs(4_000);
    const held = await holder.peek();

    await limited.release([1]);

    expect([lost, held.statuses[0]!.remaining]).toEqual([[], 0]);
    expect((await holder.peek()).statuses[0]!.remaining).toBe(1);
  });

  it("no limit below 0 is accepted, to renew or to release", async () => {
    const wrong = replicaOf(open(), withCount(-1));

    await expect(wrong.renew([1])).rejects.toThrow("SLUICE_BAD_ARGUMENT");
    await expect(wrong.release([1])).rejects.toThrow("SLUICE_BAD_ARGUMENT");
  });

  function withCount(count: number): Policy {
    return { ...policy, limits: policy.limits.map((limit) => ({ ...limit, count })) };
  }
});

describe.each(storeKinds())("a lease in $name", ({ open }) => {
  const replicasOf = ({ store }: PinnedStore, names: string, given = policy) =>
    names.split("").map((name) => createTestReplica(store, { bucket: "b", name, policy: given }));
  const got = async (replica: ReturnType<typeof createTestReplica>): Promise<number> =>
    slotsOf(await replica.draw(1)).length;

  it("goes to the replica that has waited longest when it is released, whichever draws first", async () => {
    const pinned = open();
    const [holder, first, second, third] = replicasOf(pinned, "zxya");
    await holder!.draw(1);
    await holder!.draw(1);
    const order: string[] = [];
    for (const waiter of [first!, second!, third!]) {
      await waiter.draw(1);
      pinned.clock.advanceMs(10);
    }

    await holder!.release([1]);
    if ((await got(third!)) > 0) order.push("third");
    if ((await got(second!)) > 0) order.push("second");
    if ((await got(first!)) > 0) order.push("first");
    await holder!.release([2]);
    if ((await got(third!)) > 0) order.push("third");
    if ((await got(second!)) > 0) order.push("second");
    await first!.release([1]);
    if ((await got(third!)) > 0) order.push("third");

    expect(order).toEqual(["first", "second", "third"]);
  });

  it("goes to other waiting replicas before a replica that has just got its first gets a second", async () => {
    const pinned = open();
    const [holder, greedy, other] = replicasOf(pinned, "hgo");
    await holder!.draw(1);
    await holder!.draw(1);
    await greedy!.draw(2);
    pinned.clock.advanceMs(10);
    await other!.draw(1);
    pinned.clock.advanceMs(10);

    await holder!.release([1]);
    const first = slotsOf(await greedy!.draw(2)).length;
    pinned.clock.advanceMs(10);
    await holder!.release([2]);

    expect([first, await got(greedy!), await got(other!)]).toEqual([1, 0, 1]);
  });

  it("is not taken by a new call or a try while another call waits for it", async () => {
    const pinned = open();
    const [holder, waiter, newcomer] = replicasOf(pinned, "abc");
    await holder!.draw(1);
    await holder!.draw(1);
    await waiter!.draw(1);
    await holder!.release([1]);

    const tried = await newcomer!.drawAll([{ wanted: 1, isTry: true }]);
    const drawn = await newcomer!.draw(1);

    expect([...slotsOf(tried), ...slotsOf(drawn)]).toEqual([]);
    expect(await got(waiter!)).toBe(1);
  });

  it("goes to a new call when the earlier callers have left", async () => {
    const pinned = open();
    const [holder, waiter, newcomer] = replicasOf(pinned, "abc");
    await holder!.draw(1);
    await holder!.draw(1);
    await waiter!.draw(1);

    await waiter!.giveBack([]);
    await holder!.release([1]);

    expect(await got(newcomer!)).toBe(1);
  });

  it("becomes free at its end if its replica has died", async () => {
    const pinned = open();
    const [dead, waiter] = replicasOf(pinned, "ab");
    await dead!.draw(1);
    await dead!.draw(1);

    pinned.clock.advanceMs(4_999);
    const before = await got(waiter!);
    pinned.clock.advanceMs(1);
    const after = await got(waiter!);

    expect([before, after]).toEqual([0, 1]);
  });

  it("is still held if the clock steps back after a release saw its end", async () => {
    const pinned = open();
    const [holder, waiter] = replicasOf(pinned, "ab");
    await holder!.draw(1);
    await holder!.draw(1);
    pinned.clock.advanceMs(5_000);
    await holder!.release([]);
    pinned.clock.advanceMs(-1);

    expect(await got(waiter!)).toBe(0);
  });

  it("lasts for as long as it is renewed", async () => {
    const pinned = open();
    const [holder, waiter] = replicasOf(pinned, "ab");
    await holder!.draw(1);
    await holder!.draw(1);

    const waited = [];
    for (let round = 0; round < 10; round++) {
      pinned.clock.advanceMs(2_000);
      expect(await holder!.renew([1, 2])).toEqual([]);
      waited.push(await got(waiter!));
    }

    expect(new Set(waited)).toEqual(new Set([0]));
  });

  it("is reported as lost once another call may have taken it", async () => {
    const pinned = open();
    const [holder, waiter] = replicasOf(pinned, "ab");
    await holder!.draw(1);
    pinned.clock.advanceMs(3_000);
    await holder!.draw(1);
    pinned.clock.advanceMs(2_000);
    await waiter!.draw(1);

    const lost = await holder!.renew([1, 2, 3]);

    expect(lost.toSorted((a, b) => a - b)).toEqual([1, 3]);
  });

  it("is reported as lost by a store that has forgotten the bucket", async () => {
    const [holder] = replicasOf(open(), "a");

    expect(await holder!.renew([1, 2])).toEqual([1, 2]);
  });

  it("stays reserved for an absent waiter for 1.5 s, and no longer", async () => {
    const pinned = open();
    const [holder, gone, waiter] = replicasOf(pinned, "abc");
    await holder!.draw(1);
    await holder!.draw(1);
    await gone!.draw(1);
    pinned.clock.advanceMs(100);
    await waiter!.draw(1);
    await holder!.release([1]);

    const blocked = await got(waiter!);
    pinned.clock.advanceMs(1_399);
    const stillBlocked = await got(waiter!);
    pinned.clock.advanceMs(1);
    const free = await got(waiter!);

    expect([blocked, stillBlocked, free]).toEqual([0, 0, 1]);
  });

  it("lets a waiter keep its position as long as it keeps drawing", async () => {
    const pinned = open();
    const [holder, waiter, other] = replicasOf(pinned, "abc");
    await holder!.draw(1);
    await holder!.draw(1);
    for (let round = 0; round < 8; round++) {
      await waiter!.draw(1);
      pinned.clock.advanceMs(500);
      await holder!.renew([1, 2]);
      await other!.draw(1);
    }

    await holder!.release([1]);

    expect(await got(other!)).toBe(0);
    expect(await got(waiter!)).toBe(1);
  });

  it("keeps the position of its waiter while all keys must wait", async () => {
    const pinned = open();
    const keyed = policyOf({ rate: "10/s", perKey: { concurrency: 1 } });
    const [holder, waiter] = replicasOf(pinned, "hw", keyed);
    await holder!.drawAll([{ wanted: 1, key: "k" }]);
    pinned.clock.advanceMs(500);
    const [waiting] = (await waiter!.drawAll([{ wanted: 1, key: "k" }])).granted;

    const [, behind] = (await waiter!.drawAll([{ wanted: 50 }, { wanted: 1, key: "k" }])).granted;

    expect(waiting!.positions[0]!.leaseOrder).toBeGreaterThan(0);
    expect(behind!.positions).toEqual(waiting!.positions);
  });

  it("is kept for each key by itself", async () => {
    const pinned = open();
    const perKey = policyOf({ perKey: { concurrency: 1 } });
    const [a, b] = replicasOf(pinned, "ab", perKey);
    await a!.drawAll([{ key: "x", wanted: 1 }]);

    const replies = [
      await b!.drawAll([{ key: "x", wanted: 1 }]),
      await b!.drawAll([{ key: "y", wanted: 1 }]),
    ];
    await a!.release([1], "x");
    replies.push(await b!.drawAll([{ key: "x", wanted: 1 }]));

    expect(replies.map((reply) => slotsOf(reply).length)).toEqual([0, 1, 1]);
  });

  it("becomes free for each key that was released together, and for no other key", async () => {
    const pinned = open();
    const perKey = policyOf({ perKey: { concurrency: 1 } });
    const [holder, replica] = replicasOf(pinned, "ab", perKey);
    for (const key of "xyz") await holder!.drawAll([{ key, wanted: 1 }]);

    await holder!.release([1, 2], "x", "y");
    const replies = [];
    for (const key of "xyz") replies.push(await replica!.drawAll([{ key, wanted: 1 }]));

    expect(replies.map((reply) => slotsOf(reply).length)).toEqual([1, 1, 0]);
  });

  it("still counts for running calls after its limit was removed and restored", async () => {
    const pinned = open();
    const [holder] = replicasOf(pinned, "a");
    await holder!.draw(1);
    await holder!.draw(1);
    const [without] = replicasOf(pinned, "b", policyOf({ rate: "10/s" }));
    await without!.draw(1);
    pinned.clock.advanceMs(1_000);

    const [again] = replicasOf(pinned, "c");

    expect(await got(again!)).toBe(0);
  });

  it("lasts for one more lease time after it is renewed", async () => {
    const pinned = open();
    const [holder, waiter] = replicasOf(pinned, "ab");
    await holder!.draw(1);
    await holder!.draw(1);
    pinned.clock.advanceMs(2_000);
    await holder!.renew([1]);

    pinned.clock.advanceMs(4_999);
    const [second, first] = [await got(waiter!), await got(waiter!)];
    pinned.clock.advanceMs(1);
    const free = await got(waiter!);

    expect([second, first, free]).toEqual([1, 0, 1]);
  });

  it("cannot be renewed after it has expired, even if no other call took it", async () => {
    const pinned = open();
    const [holder, other] = replicasOf(pinned, "ab");
    await holder!.draw(1);
    pinned.clock.advanceMs(5_000);

    const lost = await holder!.renew([1]);

    expect(lost).toEqual([1]);
    expect([await got(other!), await got(other!)]).toEqual([1, 1]);
  });
});

import { describe, expect, it } from "vitest";
import { PAUSED } from "../../../src/core/store.ts";
import { concurrency, leakyBucket, slidingLog } from "../../../src/core/policy/limit-makers.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { EXCESS } from "../../support/draws/bounds.ts";
import { simulateParties } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const calls = leakyBucket("500/min");
const tokens = leakyBucket("90000/min", { unit: "tokens", burst: 4_000 });
const llm = policyOf({ limits: [calls, tokens, concurrency(25)] });
const costly = { wanted: 1, cost: { tokens: 3_000 } };

describe.each(storeKinds())("a draw on several limits in $name", ({ open }) => {
  const replicaOf = ({ store }: PinnedStore, policy = llm, name = "a") =>
    createTestReplica(store, { bucket: "b", name, policy });

  it("exceeds none of its limits, whichever limit delays it", async () => {
    const pinned = open();
    const replicas = ["a", "b", "c"].map((name) => replicaOf(pinned, llm, name));
    const passed: { slotUs: number; cost: number }[] = [];
    const running: { by: number; lease: number; untilUs: number }[] = [];
    let most = 0;

    for (let round = 0; round < 1_500; round++) {
      const by = round % 3;
      const replica = replicas[by]!;
      const cost = 1 + ((round * 7_919) % 400);
      const lease = replica.lease;
      const slots = slotsOf(await replica.drawAll([{ wanted: 3, cost: { tokens: cost } }]));
      for (const [index, slotUs] of slots.entries()) {
        passed.push({ slotUs, cost });
        running.push({ by, lease: lease + index, untilUs: slotUs + 3_500_000 });
      }
      most = Math.max(most, running.length);
      pinned.clock.advanceMs(40);
      const ended = running.filter((each) => each.untilUs <= pinned.clock.nowUs());
      for (const each of ended) {
        await replicas[each.by]!.release([each.lease]);
        running.splice(running.indexOf(each), 1);
      }
    }

    const inCalls = passed.map(({ slotUs }) => ({ slotUs, cost: 1 }));
    expect(EXCESS["leaky-bucket"]!(calls, inCalls)).toBeLessThanOrEqual(0);
    expect(EXCESS["leaky-bucket"]!(tokens, passed)).toBeLessThanOrEqual(0);
    expect(most).toBeLessThanOrEqual(25);
    // 25 calls of 3.5 s each: that many leases are what binds.
    expect(passed.length).toBeGreaterThan(0.9 * 25 * (60 / 3.5));
  });

  it("uses no limit if another limit has no room", async () => {
    const pinned = open();
    const replica = replicaOf(pinned);
    await replica.drawAll([{ wanted: 1, cost: { tokens: 4_000 } }]);
    pinned.clock.advanceMs(1_000);
    const before = await replica.peek();

    const refused = await replicaOf(pinned, llm, "other").drawAll([costly]);

    const after = await replica.peek();
    expect(slotsOf(refused)).toEqual([]);
    expect(after.statuses).toEqual(before.statuses);
  });

  it("names the cause of its delay: calls, tokens, leases, a pause, or only the line", async () => {
    const first = open();
    await replicaOf(first).drawAll([{ wanted: 1, cost: { tokens: 1 } }]);
    const byCalls = await replicaOf(first).drawAll([{ wanted: 1, cost: { tokens: 1 } }]);
    const second = open();
    await replicaOf(second).drawAll([{ wanted: 1, cost: { tokens: 4_000 } }]);
    const byTokens = await replicaOf(second).drawAll([costly]);
    const third = open();
    const narrow = policyOf({ limits: [leakyBucket("500/min"), concurrency(1)] });
    await replicaOf(third, narrow).draw(1);
    third.clock.advanceMs(200);
    const byLeases = await replicaOf(third, narrow).draw(1);
    await replicaOf(third, narrow).steer({ do: "pause", durationUs: 60_000_000 });
    const byPause = await replicaOf(third, narrow).draw(1);
    const byNone = await replicaOf(open()).draw(1);

    const all = [byCalls, byTokens, byLeases, byPause, byNone];
    expect(all.map(({ granted }) => granted[0]!.bindsAt)).toEqual([1, 2, 2, PAUSED, 0]);
  });

  it("numbers a limit of its key after the shared limits", async () => {
    const pinned = open();
    const policy = policyOf({
      limits: [leakyBucket("500/s"), slidingLog(500, "1s")],
      perKey: { limits: [leakyBucket("100/s"), slidingLog(1, "10s")] },
    });
    await replicaOf(pinned, policy).drawAll([{ wanted: 1, key: "k" }]);

    const refused = await replicaOf(pinned, policy, "other").drawAll([{ wanted: 1, key: "k" }]);

    expect(refused.granted[0]).toMatchObject({ bindsAt: 4 });
    expect(refused.granted[0]!.notBeforeUs).toBeGreaterThan(refused.nowUs);
  });

  it("grants a call of the whole burst although three replicas keep drawing small calls", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s", burst: 50 });
    const small = ["a", "b", "c"].map((name) => ({
      replica: replicaOf(pinned, policy, name),
      slotRequests: [{ wanted: 40, cost: 1 }],
    }));
    await simulateParties(pinned, small, 3_000);
    const large = {
      replica: replicaOf(pinned, policy, "large"),
      slotRequests: [{ wanted: 1, cost: 50 }],
    };
    const startUs = pinned.clock.nowUs();

    const grants = await simulateParties(pinned, [...small, large], 10_000);

    const own = grants.filter(({ by }) => by === 3).map(({ slotUs }) => slotUs - startUs);
    expect(own.length).toBeGreaterThan(1);
    // A fair quarter of 100/s is such a call every two seconds.
    expect(own[0]).toBeLessThanOrEqual(2_500_000);
    const passed = grants.map(({ slotUs, by }) => ({ slotUs, cost: by === 3 ? 50 : 1 }));
    expect(EXCESS["leaky-bucket"]!(policy.limits[0]!, passed)).toBeLessThanOrEqual(0);
  });

  it("grants small calls although three replicas keep drawing large calls", async () => {
    const pinned = open();
    const policy = policyOf({ rate: "100/s", burst: 50 });
    const large = ["a", "b", "c"].map((name) => ({
      replica: replicaOf(pinned, policy, name),
      slotRequests: [{ wanted: 5, cost: 50 }],
    }));
    await simulateParties(pinned, large, 3_000);
    const small = {
      replica: replicaOf(pinned, policy, "small"),
      slotRequests: [{ wanted: 5, cost: 1 }],
    };

    const grants = await simulateParties(pinned, [...large, small], 20_000);

    expect(grants.filter(({ by }) => by === 3).length).toBeGreaterThan(5);
  });
});

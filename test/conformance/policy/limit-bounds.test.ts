import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  budget,
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import { RULES } from "../../../src/core/limits/registry.ts";
import { createTestReplica, policyOf, slotsOf } from "../../support/draws/test-replica.ts";
import { EXCESS, type Passed } from "../../support/draws/bounds.ts";
import { simulate } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

/** Of each kind some limits, and how many units each lets pass within so many ms of a backlog. */
const CASES: readonly { limit: Limit; passes: number; forMs: number }[] = [
  { limit: leakyBucket("3000/s", { burst: 7 }), passes: 9_007, forMs: 3_000 },
  { limit: leakyBucket("7/s"), passes: 140, forMs: 20_000 },
  { limit: leakyBucket("10/s"), passes: 200, forMs: 20_000 },
  { limit: tokenBucket({ capacity: 40, refill: "11/s" }), passes: 260, forMs: 20_000 },
  { limit: slidingLog(60, "1s"), passes: 300, forMs: 4_999 },
  { limit: slidingLog(5, "20s"), passes: 15, forMs: 59_000 },
  { limit: slidingWindow(50, "1s"), passes: 242, forMs: 4_999 },
  { limit: fixedWindow(70, "1s"), passes: 350, forMs: 4_999 },
  { limit: fixedWindow(9, "1min"), passes: 27, forMs: 179_000 },
  {
    limit: budget({ unit: "calls", amount: 0.00003, per: "day", timeZone: "Europe/Berlin" }),
    passes: 30,
    forMs: 3_000,
  },
  {
    limit: budget({ unit: "calls", amount: 0.00004, per: { days: 3 } }),
    passes: 40,
    forMs: 3_000,
  },
];
const RATE_KINDS = [...RULES.values()].filter(({ isRate }) => isRate).map(({ kind }) => kind);
const name = ({ kind, count, periodUs, capacity }: Limit): string =>
  `${kind} of ${count} per ${periodUs} µs, ${capacity} at once`;

const step = fc.record({
  replica: fc.nat(2),
  wanted: fc.integer({ min: 1, max: 90 }),
  /** Of the capacity. */
  part: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 1, noNaN: true })),
  wait: fc.oneof(fc.nat(2_000), fc.nat(400_000), fc.nat(3_000_000), fc.constant("edge" as const)),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A budget also refuses calls that cost more than its amount, but only until it is raised. */
function mostOf({ count, capacity, budget: terms }: Limit): number {
  return terms === undefined ? capacity : count;
}

function leasesFrom(first: number, next: number): number[] {
  return Array.from({ length: next - first }, (_, index) => first + index);
}

async function drawAtRandom(
  { store, clock }: PinnedStore,
  limit: Limit,
  steps: readonly Step[],
): Promise<Passed[]> {
  const policy = policyOf({ limits: [limit] });
  const replicas = ["a", "b", "c"].map((each) =>
    createTestReplica(store, { bucket: "b", name: each, policy }),
  );
  const passed: Passed[] = [];
  for (const { replica, wanted, part, wait } of steps) {
    const cost = Math.max(1, Math.floor(part * mostOf(limit)));
    const slots = slotsOf(await replicas[replica]!.draw(wanted, cost));
    passed.push(...slots.map((slotUs) => ({ slotUs, cost })));
    const latestUs = passed.at(-1)?.slotUs ?? 0;
    // A µs after the last one has drained is where rounding shows.
    const edgeUs = latestUs + Math.ceil((cost * limit.periodUs) / limit.count) + 1;
    const waitUs = typeof wait === "number" && limit.budget ? wait * 50_000 : wait;
    clock.set(waitUs === "edge" ? Math.max(clock.nowUs(), edgeUs) : clock.nowUs() + waitUs);
  }
  return passed;
}

describe("limits that hold units per time", () => {
  it("each have a bound and a case in this suite", () => {
    expect(Object.keys(EXCESS)).toEqual(RATE_KINDS);
    expect(new Set(CASES.map(({ limit }) => limit.kind))).toEqual(new Set(RATE_KINDS));
  });
});

describe.each(storeKinds())("a limit in $name", ({ open }) => {
  it.each(CASES.map((each) => [name(each.limit), each] as const))(
    "is never passed by random draws: %s",
    async (_name, { limit }) => {
      const steps = fc.array(step, { minLength: 1, maxLength: 30 });
      await fc.assert(
        fc.asyncProperty(steps, async (given) => {
          const passed = await drawAtRandom(open(), limit, given);

          expect(EXCESS[limit.kind]!(limit, passed)).toBeLessThanOrEqual(0);
        }),
        { numRuns: 30 },
      );
    },
  );

  it.each(CASES.map((each) => [name(each.limit), each] as const))(
    "is used up by the backlogs of three replicas: %s",
    async (_name, { limit, passes, forMs }) => {
      const pinned = open();
      const policy = policyOf({ limits: [limit] });
      const replicas = ["a", "b", "c"].map((each) =>
        createTestReplica(pinned.store, { bucket: "b", name: each, policy }),
      );

      const slots = (await simulate(pinned, replicas, { forMs, backlog: 400 })).flat();

      const passed = slots.map((slotUs) => ({ slotUs, cost: 1 }));
      expect(EXCESS[limit.kind]!(limit, passed)).toBeLessThanOrEqual(0);
      expect(passed.length).toBeGreaterThanOrEqual(Math.floor(passes * 0.995));
    },
  );

  it.each([
    { start: "2026-10-31T22:00:00-07:00", hours: 25 },
    { start: "2027-03-13T22:00:00-08:00", hours: 23 },
  ])(
    "counts a civil day of $hours hours in Los Angeles, whose clocks change after $start",
    async ({ start, hours }) => {
      const pinned = open();
      const align = { at: "00:00", timeZone: "America/Los_Angeles" };
      const limit = fixedWindow(48, "1d", { align });
      const policy = policyOf({ limits: [limit] });
      const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
      pinned.clock.set(Date.parse(start) * 1_000);

      const slots: number[] = [];
      for (let tenth = 0; tenth < 10 * (2 + hours + 48); tenth++) {
        slots.push(...slotsOf(await replica.draw(1)));
        pinned.clock.advanceMs(360_000);
      }

      const passed = slots.map((slotUs) => ({ slotUs, cost: 1 }));
      expect(EXCESS[limit.kind]!(limit, passed)).toBe(0);
      // One each six minutes of the two hours before midnight, and then what three days let pass.
      expect(passed).toHaveLength(20 + 3 * 48);
    },
  );

  it("never has more leases than its maximum, whenever leases are released", async () => {
    const steps = fc.array(
      fc.record({
        replica: fc.nat(2),
        wanted: fc.nat(8),
        waitMs: fc.nat(600),
        released: fc.nat(6),
      }),
      { maxLength: 60 },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (given) => {
        const { store, clock } = open();
        const policy = policyOf({ limits: [concurrency(5, { leaseMs: 2_000 })] });
        const replicas = ["a", "b", "c"].map((each) =>
          createTestReplica(store, { bucket: "b", name: each, policy }),
        );
        const alive: { replica: number; lease: number; fromUs: number }[] = [];
        let most = 0;
        for (const { replica, wanted, waitMs, released } of given) {
          const own = replicas[replica]!;
          const lease = own.lease;
          const slots = wanted === 0 ? [] : slotsOf(await own.draw(wanted));
          alive.push(...slots.map((fromUs, index) => ({ replica, lease: lease + index, fromUs })));
          const living = alive.filter(({ fromUs }) => clock.nowUs() < fromUs + 2_000_000);
          most = Math.max(most, living.length);
          const ended = living.filter((each) => each.replica === replica).slice(0, released);
          await own.release(ended.map((each) => each.lease));
          for (const each of ended) alive.splice(alive.indexOf(each), 1);
          clock.advanceMs(waitMs);
        }

        expect(most).toBeLessThanOrEqual(5);
      }),
      { numRuns: 30 },
    );
  });

  it("keeps all its leases in use while calls wait", async () => {
    const pinned = open();
    const policy = policyOf({ limits: [concurrency(5)] });
    const replica = createTestReplica(pinned.store, { bucket: "b", name: "a", policy });
    let started = 0;

    for (let round = 0; round < 20; round++) {
      const lease = replica.lease;
      while (slotsOf(await replica.draw(10)).length > 0);
      started += replica.lease - lease;
      pinned.clock.advanceMs(100);
      await replica.release(leasesFrom(lease, replica.lease));
    }

    expect(started).toBe(100);
  });
});

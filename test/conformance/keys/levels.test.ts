import { describe, expect, it } from "vitest";
import { headsOfText, levelsOfText, encodeKey } from "../../../src/core/key-path.ts";
import { concurrency, leakyBucket, tokenBucket } from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import type { PolicyOptions } from "../../../src/core/policy/policy.ts";
import { boundBy, COOLING, NO_POSITION, PAUSED, type KeyScope } from "../../../src/core/store.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { EXCESS } from "../../support/draws/bounds.ts";
import { simulateParties, type Party } from "../../support/draws/simulate.ts";
import { storeKinds, type PinnedStore } from "../../support/draws/store-kinds.ts";

const key = (...names: readonly string[]): string => encodeKey(names);
const X = key("acme", "x");
const Y = key("acme", "y");

/** What a path has limits of: those of a level are the same for all its names. */
function scopesBy(levels: readonly (readonly Limit[])[]) {
  return (path: string | undefined): readonly KeyScope[] =>
    path === undefined
      ? []
      : headsOfText(path).map((head, level): KeyScope => {
          return { key: head, limits: levels[level] ?? [], position: NO_POSITION };
        });
}

function replicasOf(
  { store }: PinnedStore,
  names: readonly string[],
  { levels, ...shared }: PolicyOptions & { readonly levels: readonly (readonly Limit[])[] },
): readonly TestReplica[] {
  const perKey = { limits: levels[0]! };
  const parts = { bucket: "b", policy: policyOf({ ...shared, perKey }) };
  const scopesOf = scopesBy(levels);
  return names.map((name) => createTestReplica(store, { ...parts, name, scopesOf }));
}

describe.each(storeKinds())("keys with levels in $name", ({ open }) => {
  it("take all levels or none, and a refused try writes nothing", async () => {
    const pinned = open();
    const levels = [
      [tokenBucket({ capacity: 3, refill: "1/h" })],
      [tokenBucket({ capacity: 1, refill: "1/h" })],
    ];
    const replica = replicasOf(pinned, ["a"], { rate: "100/s", burst: 9, levels })[0]!;
    const tryOf = async (path: string): Promise<number> =>
      slotsOf(await replica.drawAll([{ wanted: 2, key: path, isTry: true }])).length;
    const left = async (path: string): Promise<number[]> =>
      (await replica.peek(path)).statuses.map(({ remaining }) => remaining);

    const passed = [await tryOf(X), await tryOf(X), await tryOf(Y)];

    expect(passed).toEqual([1, 0, 1]);
    expect(await left(X)).toEqual([7, 1, 0]);
  });

  it("name the limit that delays a try for the longest", async () => {
    const pinned = open();
    const levels = [
      [tokenBucket({ capacity: 1, refill: "1/h" })],
      [tokenBucket({ capacity: 1, refill: "1/m" })],
    ];
    const replica = replicasOf(pinned, ["a"], { levels })[0]!;
    const tried = [{ wanted: 1, key: X, isTry: true }];
    await replica.drawAll(tried);

    const [refused] = (await replica.drawAll(tried)).granted;

    expect(refused).toMatchObject({ bindsAt: 1, run: undefined });
    expect(refused!.notBeforeUs - pinned.clock.nowUs()).toBe(3_600_000_000);
  });

  it.each([
    ["a shared rate", { rate: "40/s" as const, burst: 1 }],
    ["nothing shared", {}],
  ])("let a blocked endpoint hold up no other of its tenant, with %s", async (_what, shared) => {
    const pinned = open();
    const levels = [[leakyBucket("40/s", { burst: 1 })], [leakyBucket("30/s", { burst: 1 })]];
    const replicas = replicasOf(pinned, ["a", "b"], { ...shared, levels });
    await replicas[0]!.steer({ do: "pause", durationUs: 60_000_000 }, X);
    const parties = replicas.map((replica): Party => {
      return {
        replica,
        asksOldestFirst: true,
        slotRequests: [X, Y].map((path) => ({ wanted: 10, key: path })),
      };
    });

    const grants = await simulateParties(pinned, parties, 4_000);

    expect(grants.filter(({ slotRequest }) => slotRequest === 0)).toEqual([]);
    expect(grants.length).toBeGreaterThanOrEqual(0.97 * 120);
  });

  it.each([
    ["the bucket", undefined, 0],
    ["a tenant", "acme", 1],
    ["an endpoint", X, 2],
  ])("report %s as paused or cooled down, for a try and for a draw", async (_what, of, number) => {
    for (const shared of [{ rate: "90/s" as const }, {}]) {
      const pinned = open();
      const levels = [[leakyBucket("30/s")], [leakyBucket("20/s")]];
      const replica = replicasOf(pinned, ["a"], { ...shared, levels })[0]!;
      const told: number[] = [];
      const ask = async (): Promise<void> => {
        for (const isTry of [true, false]) {
          const { granted } = await replica.drawAll([{ wanted: 1, key: X, isTry }]);
          told.push(granted[0]!.bindsAt);
        }
      };
      await replica.drawAll([{ wanted: 1, key: X }]);

      await replica.steer({ do: "pause", durationUs: 60_000_000 }, of);
      await ask();
      await replica.steer({ do: "pause", durationUs: 0 }, of);
      await replica.steer(
        { do: "cool", durationUs: 50_000_000, rampUs: 0, slotUs: pinned.clock.nowUs() },
        of,
      );
      await ask();
      // What lasts longest is told of.
      await replica.steer({ do: "pause", durationUs: 10_000_000 }, of === X ? "acme" : X);
      await ask();

      const [paused, cooling] = [PAUSED, COOLING].map((cause) => boundBy(cause, number));
      expect(told).toEqual([paused, paused, cooling, cooling, cooling, cooling]);
    }
  });

  it("let a blocked tenant delay no other tenant", async () => {
    const pinned = open();
    const levels = [[leakyBucket("30/s", { burst: 1 })], [leakyBucket("20/s", { burst: 1 })]];
    const replicas = replicasOf(pinned, ["a", "b"], { rate: "90/s", burst: 1, levels });
    await replicas[0]!.steer({ do: "pause", durationUs: 60_000_000 }, "acme");
    const paths = [X, key("other", "x"), key("other", "y")];
    const parties = replicas.map((replica): Party => {
      return {
        replica,
        asksOldestFirst: true,
        slotRequests: paths.map((path) => ({ wanted: 10, key: path })),
      };
    });

    const grants = await simulateParties(pinned, parties, 4_000);

    expect(grants.filter(({ slotRequest }) => slotRequest === 0)).toEqual([]);
    expect(grants.length).toBeGreaterThanOrEqual(0.97 * 120);
  });

  it.each<[string, PolicyOptions, number, number, number]>([
    ["the shared rate", { rate: "60/s" as const, burst: 4 }, 60, 40, 30],
    ["the tenants' rates", { rate: "90/s" as const, burst: 4 }, 60, 20, 15],
    ["the tenants' rates, with nothing shared", {}, 60, 20, 15],
    ["the endpoints' rates", { rate: "90/s" as const, burst: 4 }, 54, 30, 6],
  ])(
    "exceed no limit of any level, and use the tightest one fully: %s",
    async (_what, shared, perSecond, ofTenant, ofEndpoint) => {
      const pinned = open();
      const levels = [ofTenant, ofEndpoint].map((rate) => [leakyBucket(`${rate}/s`, { burst: 2 })]);
      const replicas = replicasOf(pinned, ["a", "b", "c", "d"], { ...shared, levels });
      const paths = ["1", "2", "3"].flatMap((tenant) =>
        ["x", "y", "z"].map((name) => key(tenant, name)),
      );
      const parties = replicas.map((replica): Party => {
        return {
          replica,
          asksOldestFirst: true,
          slotRequests: paths.map((path) => ({ wanted: 5, key: path })),
        };
      });

      const grants = await simulateParties(pinned, parties, 6_000);

      const byScope = new Map<string, { slotUs: number; cost: number }[]>();
      for (const { slotUs, slotRequest } of grants) {
        for (const head of headsOfText(paths[slotRequest]!)) {
          byScope.set(head, [...(byScope.get(head) ?? []), { slotUs, cost: 1 }]);
        }
      }
      const excesses = [...byScope].map(([head, passed]) => {
        return EXCESS["leaky-bucket"]!(levels[levelsOfText(head) - 1]![0]!, passed);
      });
      expect(Math.max(...excesses)).toBeLessThanOrEqual(0);
      expect(grants.length).toBeGreaterThanOrEqual(0.97 * 6 * perSecond);
      // No tenant and no endpoint is left behind.
      const counts = [...byScope.values()].map(({ length }) => length);
      expect(counts).toHaveLength(12);
      expect(Math.min(...counts)).toBeGreaterThan(0.6 * ((6 * perSecond) / 9));
    },
  );

  it("give a tenant's lease to the longest-waiting call whose endpoint has room", async () => {
    const pinned = open();
    const levels = [[concurrency(2)], [concurrency(1)]];
    const names = ["holder", "full", "first", "second"];
    const [holder, full, first, second] = replicasOf(pinned, names, { levels }) as [
      TestReplica,
      TestReplica,
      TestReplica,
      TestReplica,
    ];
    const draw = async (replica: TestReplica, path: string): Promise<number> => {
      pinned.clock.advanceMs(5);
      return slotsOf(await replica.drawAll([{ wanted: 1, key: path }])).length;
    };
    await draw(holder, X);
    await draw(holder, Y);
    const waiting = [
      await draw(full, X),
      await draw(first, key("acme", "z")),
      await draw(second, key("acme", "w")),
    ];
    await holder.release([2], Y);

    const served = [
      await draw(second, key("acme", "w")),
      await draw(full, X),
      await draw(first, key("acme", "z")),
    ];

    expect(waiting).toEqual([0, 0, 0]);
    expect(served).toEqual([0, 0, 1]);
  });

  describe("with an expired wide level", () => {
    const wide = [
      tokenBucket({ unit: "tokens", capacity: 100, refill: "1/h" }),
      leakyBucket("50/s", { unit: "bytes" }),
    ];

    /** One that draws from both levels of a path, and one that knows only the narrow one. */
    function openBoth(narrow: readonly Limit[]): { narrowOnly: TestReplica; both: TestReplica } {
      const { store } = open();
      const parts = { bucket: "b", policy: policyOf({ perKey: { limits: narrow } }) };
      const ofBoth = scopesBy([wide, narrow]);
      const ofNarrow = (path: string | undefined): readonly KeyScope[] => ofBoth(path).slice(1);
      return {
        narrowOnly: createTestReplica(store, { ...parts, name: "a", scopesOf: ofNarrow }),
        both: createTestReplica(store, { ...parts, name: "b", scopesOf: ofBoth }),
      };
    }

    it("settle the narrow level by its own numbers", async () => {
      const { narrowOnly, both } = openBoth([tokenBucket({ capacity: 10, refill: "1/h" })]);
      const [slotUs] = slotsOf(await narrowOnly.drawAll([{ wanted: 1, key: X }]));

      await both.settle(slotUs!, { tokens: 5, bytes: 7, calls: 2 }, X);

      expect((await narrowOnly.peek(X)).statuses).toMatchObject([{ remaining: 10 - 1 - 2 }]);
    });

    it("return the cost of the narrow level to that level", async () => {
      const { narrowOnly, both } = openBoth([leakyBucket("50/s", { burst: 1 })]);
      await both.drawAll([{ wanted: 1, key: key("other", "x") }]);
      const slots = slotsOf(await narrowOnly.drawAll([{ wanted: 2, key: X }]));
      expect(slots).toHaveLength(2);

      await both.giveBack(slots.slice(1), { tokens: 5, bytes: 7 }, X);

      const again = slotsOf(await narrowOnly.drawAll([{ wanted: 1, key: X }]));
      expect(again).toEqual(slots.slice(1));
    });
  });
});

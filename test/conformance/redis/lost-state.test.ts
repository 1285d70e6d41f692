import { describe, expect, it } from "vitest";
import {
  concurrency,
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
  tokenBucket,
} from "../../../src/core/policy/limit-makers.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import type { Store } from "../../../src/core/store.ts";
import {
  createTestReplica,
  policyOf,
  slotsOf,
  type TestReplica,
} from "../../support/draws/test-replica.ts";
import { storeKinds } from "../../support/draws/store-kinds.ts";

/** When the next call may leave after a burst that filled the limit at a full second, 20 s into a minute, in ms. */
const EMPTY_HANDED: [string, Limit, number][] = [
  ["leaky bucket", leakyBucket("10/s", { burst: 5 }), 100],
  ["token bucket", tokenBucket({ capacity: 5, refill: "10/s" }), 100],
  ["short log", slidingLog(5, "1s"), 1_000],
  ["short window", fixedWindow(5, "1s"), 1_000],
  ["window of a minute", fixedWindow(5, "1min"), 40_000],
];
const FULL: [string, Limit][] = [
  ["daily window", fixedWindow(5, "1d")],
  ["window of two minutes", fixedWindow(5, "2min")],
  ["hourly log", slidingLog(5, "1h")],
  ["hourly sliding window", slidingWindow(5, "1h")],
  ["concurrency limit", concurrency(5)],
];

describe.each(storeKinds())("a bucket in $name whose state is lost", ({ open }) => {
  /** What is left is another bucket, as after a failover to one that is empty. */
  function replicasOf(
    limits: readonly Limit[],
    perKey?: readonly Limit[],
    versions: { readonly replica?: { version: number }; readonly other?: { version: number } } = {},
  ) {
    const { store, clock } = open();
    clock.set(1_790_000_000_000_000);
    const keyed = perKey && { perKey: { limits: perKey } };
    const policy = policyOf({ ...(limits.length > 0 && { limits }), ...keyed });
    const lost = renamed(store, "lost");
    const given = { bucket: "b", policy };
    const replica = createTestReplica(switching(store, lost), {
      ...given,
      name: "a",
      ...versions.replica,
    });
    const other = createTestReplica(lost, { ...given, name: "o", ...versions.other });
    return { clock, replica, other, lose: () => void (switched = true) };
  }

  let switched = false;
  const switching = (before: Store, after: Store): Store => {
    switched = false;
    return { ...before, draw: (request) => (switched ? after : before).draw(request) };
  };
  const renamed = (store: Store, bucket: string): Store => ({
    ...store,
    draw: (request) => store.draw({ ...request, bucket }),
  });
  const waitOf = (replica: TestReplica, { nowUs }: { nowUs: () => number }): number =>
    (replica.last!.position.turnUs - nowUs()) / 1_000;

  it.each(EMPTY_HANDED)("starts a %s as if a burst had just left", async (_n, limit, waitMs) => {
    const { replica, lose, clock } = replicasOf([limit]);
    await replica.draw(1);

    lose();
    const first = slotsOf(await replica.draw(1));

    const waitedMs =
      first.length > 0 ? (first[0]! - clock.nowUs()) / 1_000 : waitOf(replica, clock) + 100;
    expect(waitedMs).toBe(waitMs);
  });

  it.each(FULL)("restarts a %s, which would otherwise block for too long", async (_n, limit) => {
    const { replica, lose, clock } = replicasOf([limit]);
    await replica.draw(1);

    lose();

    expect(slotsOf(await replica.draw(1))).toEqual([clock.nowUs()]);
  });

  it("also starts the keys of the first draw without a burst", async () => {
    const { replica, lose, clock } = replicasOf([], [leakyBucket("10/s", { burst: 5 })]);
    await replica.drawAll([{ wanted: 1, key: "k" }]);

    lose();
    const first = slotsOf(await replica.drawAll([{ wanted: 1, key: "k" }]));

    expect(first).toEqual([clock.nowUs() + 100_000]);
  });

  it("starts full if the option says so", async () => {
    const { replica, lose, clock } = replicasOf([leakyBucket("10/s", { burst: 5 })]);
    await replica.draw(1);

    lose();
    const reply = await replica.drawAll([{ wanted: 4, startsFull: true }]);

    expect(slotsOf(reply).every((slotUs) => slotUs === clock.nowUs())).toBe(true);
  });

  it("starts full for a replica that never drew", async () => {
    const { replica, clock } = replicasOf([leakyBucket("10/s", { burst: 5 })]);

    expect(slotsOf(await replica.draw(1))).toEqual([clock.nowUs()]);
  });

  it.each([
    [3_600_000, "full", 0],
    [3_599_999, "empty-handed", 100_000],
  ])(
    "starts %d ms after the last draw %s: after an hour it may have expired",
    async (ms, _how, waitUs) => {
      const { replica, lose, clock } = replicasOf([leakyBucket("10/s", { burst: 5 })]);
      await replica.draw(1);

      lose();
      clock.advanceMs(ms);

      expect(slotsOf(await replica.draw(1))).toEqual([clock.nowUs() + waitUs]);
    },
  );

  it("is put into debt once, however many replicas detect the loss", async () => {
    const { replica, other, lose, clock } = replicasOf([leakyBucket("10/s", { burst: 5 })]);
    await replica.draw(1);
    await other.draw(1);
    lose();
    await replica.draw(1);
    clock.advanceMs(10_000);

    const later = slotsOf(await other.draw(1));

    expect(later).toEqual([clock.nowUs()]);
  });

  it("is detected by a clock that is older than the replica's last draw", async () => {
    const limits = [leakyBucket("10/s", { burst: 5 })];
    const { replica, other, lose, clock } = replicasOf(limits, undefined, {
      replica: { version: 7 },
      other: { version: 7 },
    });
    await other.draw(1);
    clock.advanceMs(10_000);
    await replica.draw(1);

    lose();
    const first = slotsOf(await replica.draw(1));

    expect(first).toEqual([clock.nowUs() + 100_000]);
  });

  it("is detected by a policy that is older than the replica's policy", async () => {
    const limits = [leakyBucket("10/s", { burst: 5 })];
    const { replica, other, lose, clock } = replicasOf(limits, undefined, {
      replica: { version: 8 },
      other: { version: 7 },
    });
    await replica.draw(1);
    clock.advanceMs(10_000);
    await other.draw(1);

    lose();
    const first = slotsOf(await replica.draw(1));

    expect(first).toEqual([clock.nowUs() + 100_000]);
  });

  it("is not changed by the replica that drew from it last", async () => {
    const { replica, clock } = replicasOf([leakyBucket("10/s", { burst: 5 })]);
    await replica.draw(1);
    clock.advanceMs(10_000);

    expect(slotsOf(await replica.draw(1))).toEqual([clock.nowUs()]);
  });

  it.each([
    ["all keys", [leakyBucket("5/s", { burst: 5 })], undefined],
    ["one key", [], [leakyBucket("5/s", { burst: 5 })]],
  ])("rejects a try, and is in debt from then on: a limit of %s", async (_of, limits, perKey) => {
    const { replica, lose } = replicasOf(limits, perKey);
    const slotRequest = { wanted: 1, key: "k" };
    await replica.drawAll([slotRequest]);

    lose();
    const refused = slotsOf(await replica.drawAll([{ ...slotRequest, isTry: true }]));
    const again = await replica.drawAll([{ ...slotRequest, isTry: true }]);

    expect(refused).toEqual([]);
    expect(again.granted[0]!.statuses[0]!.remaining).toBe(0);
  });
});

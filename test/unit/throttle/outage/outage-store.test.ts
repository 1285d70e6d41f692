import { describe, expect, it, vi } from "vitest";
import { StoreUnavailableError } from "../../../../src/core/errors.ts";
import { DREW_ELSEWHERE_US } from "../../../../src/core/store.ts";
import type { DrawRequest, SettleRequest, Store } from "../../../../src/core/store.ts";
import { createMemoryStore } from "../../../../src/stores/memory/memory-store.ts";
import { createReplicasSeen } from "../../../../src/throttle/outage/outage-store.ts";
import {
  applyOnStoreDown,
  type OnStoreDown,
} from "../../../../src/throttle/outage/on-store-down.ts";
import { createTestReplica, policyOf } from "../../../support/draws/test-replica.ts";

/** A store that can be taken away, and what it was asked. */
function awayStore() {
  const store = createMemoryStore();
  const drawn: DrawRequest[] = [];
  const settled: SettleRequest[] = [];
  const away = { is: false, refusesWrites: false };
  const guard = async <T>(work: () => Promise<T>): Promise<T> => {
    if (away.is) throw new StoreUnavailableError("away");
    return work();
  };
  const guardWrite = async <T>(work: () => Promise<T>): Promise<T> => {
    if (away.refusesWrites) throw new StoreUnavailableError("refuses writes");
    return guard(work);
  };
  const guarded: Store = {
    ...store,
    draw: (request) => guardWrite(() => (drawn.push(request), store.draw(request))),
    peek: (request) => guard(() => store.peek(request)),
    settle: (request) => guard(async () => void settled.push(request)),
    steer: (request) => guard(() => store.steer(request)),
  };
  return { store: guarded, drawn, settled, away };
}

function openReplica(onStoreDown: OnStoreDown, options = { rate: "1000/s", burst: 10 }) {
  const { store, ...facts } = awayStore();
  const logged: string[] = [];
  const log = (_facts: object, message: string): void => void logged.push(message);
  const standing = applyOnStoreDown({
    store,
    bucket: "b",
    asker: "a",
    logger: { warn: log, error: log },
    onStoreDown,
    openLocalStore: createMemoryStore,
    wake: () => undefined,
  });
  const replica = createTestReplica(standing, {
    bucket: "b",
    name: "a",
    policy: policyOf(options),
  });
  return { replica, logged, standing, ...facts };
}

describe("a store with a fallback", () => {
  it.each<[string, OnStoreDown]>([
    ["locally", { local: 1 }],
    ["openly", "open"],
  ])(
    "continues %s, logs that once, and uses Redis again when it is back",
    async (_how, onStoreDown) => {
      const { replica, away, drawn, logged } = openReplica(onStoreDown);
      await replica.draw(1);
      away.is = true;
      for (let each = 0; each < 3; each++) await replica.draw(1);

      away.is = false;
      // It serves once more while it looks.
      await replica.draw(1);
      await replica.draw(1);

      expect(logged).toHaveLength(1);
      expect(drawn).toHaveLength(2);
      expect(drawn[1]!.drewUs).toBe(DREW_ELSEWHERE_US);
    },
  );

  it.each<[string, OnStoreDown]>([
    ["locally", { local: 1 }],
    ["openly", "open"],
  ])("goes on %s as long as draws fail, also while looks succeed", async (_how, onStoreDown) => {
    const { replica, away, drawn, logged } = openReplica(onStoreDown);
    await replica.draw(1);
    away.refusesWrites = true;
    for (let each = 0; each < 5; each++) await replica.draw(1);
    await replica.peek();

    expect(logged).toHaveLength(1);
    expect(drawn).toHaveLength(1);
  });

  it("keeps nothing of the draw by which it found that the store is back", async () => {
    const { replica, away } = openReplica("open", { rate: "1/min", burst: 10 });
    await replica.draw(1);
    away.is = true;
    await replica.draw(1);
    away.is = false;
    for (let each = 0; each < 3; each++) await replica.draw(1);

    await vi.waitFor(async () => expect((await replica.peek()).statuses[0]!.remaining).toBe(0));
    const { nowUs, statuses } = await replica.peek();

    // The bucket starts as if a burst had just left, and no call more.
    expect(statuses[0]!.resetUs - nowUs).toBeLessThanOrEqual(10 * 60_000_000);
  });

  it("takes nothing back of what only the stand-in booked, and books what came to cost more", async () => {
    const { replica, away, settled } = openReplica({ local: 1 });
    await replica.draw(1);
    away.is = true;
    await replica.draw(1);
    const { nowUs: slotUs } = await replica.draw(1);
    away.is = false;
    await replica.draw(1);
    await replica.draw(1);

    await replica.settle(slotUs, { calls: -1 });
    const afterLess = settled.length;
    await replica.settle(slotUs, { calls: 2 });

    expect(afterLess).toBe(0);
    expect(settled.map(({ deltas }) => deltas)).toEqual([[2]]);
  });

  it("applies a cooldown of the downstream locally, and rejects changes for all replicas", async () => {
    const { replica, away } = openReplica({ local: 1 });
    await replica.draw(1);
    away.is = true;
    await replica.draw(1);

    await replica.steer({ do: "space", gapUs: 1_000, durationUs: 1_000_000 });
    const paused = replica.steer({ do: "pause", durationUs: 1_000_000 });

    await expect(paused).rejects.toBeInstanceOf(StoreUnavailableError);
  });
});

describe("replicas that were seen", () => {
  it("are the most of late, and none before any was", () => {
    const replicas = createReplicasSeen();
    expect(replicas.most).toBe(0);

    for (const alive of [3, 1, 2]) replicas.see(alive);

    expect(replicas.most).toBe(3);
  });
});

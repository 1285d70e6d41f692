import { randomUUID } from "node:crypto";
import { Redis } from "ioredis";
import { afterAll, inject } from "vitest";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import { createManualClock, type ManualClock } from "../../../src/entries/testing/manual-clock.ts";
import { createPinnedRedisStore } from "./pinned-redis-store.ts";

export interface PinnedStore {
  readonly store: Store;
  readonly clock: ManualClock;
}

export interface StoreKind {
  readonly name: string;
  /** A store with nothing in it, on a clock of its own. */
  readonly open: () => PinnedStore;
}

/** Both stores, for suites that hold them to the same promises. */
export function storeKinds(): readonly StoreKind[] {
  let redis: Redis | undefined;
  afterAll(async () => {
    await redis?.quit();
  });
  return [
    {
      name: "memory",
      open: () => {
        const clock = createManualClock();
        // As in Redis, state expires by another clock than the one that a test sets.
        return { store: createMemoryStore(clock.nowUs, () => performance.now() * 1_000), clock };
      },
    },
    {
      name: "Redis",
      open: () => {
        redis ??= new Redis(inject("redisUrl"));
        const clock = createManualClock();
        const options = { prefix: `t${randomUUID()}`, nowUs: clock.nowUs };
        return { store: createPinnedRedisStore(redis, options), clock };
      },
    },
  ];
}

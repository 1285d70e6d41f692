import { randomUUID } from "node:crypto";
import { compilePolicy, type PolicyOptions } from "../../src/core/policy.ts";
import type { Store } from "../../src/core/store.ts";
import { createMemoryStore } from "../../src/memory/memory-store.ts";
import { createBucket, type OwnedBucket } from "../../src/throttle/bucket.ts";

export interface Warning {
  readonly facts: object;
  readonly message: string;
}

export interface TestBucket {
  readonly bucket: OwnedBucket;
  readonly warnings: readonly Warning[];
}

/** A bucket of one replica, in memory unless a store is given. */
export function createTestBucket(
  policy: PolicyOptions,
  { store = createMemoryStore(), name = "test" }: { store?: Store; name?: string } = {},
): TestBucket {
  const warnings: Warning[] = [];
  const log = (facts: object, message: string): void => {
    warnings.push({ facts, message });
  };
  const bucket = createBucket({
    name,
    policy: compilePolicy("test", policy),
    store,
    replica: randomUUID(),
    logger: { warn: log, error: log },
  });
  return { bucket, warnings };
}

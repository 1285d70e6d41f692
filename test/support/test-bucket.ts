import { randomUUID } from "node:crypto";
import { compilePolicy } from "../../src/core/policy.ts";
import type { Store } from "../../src/core/store.ts";
import { createMemoryStore } from "../../src/memory/memory-store.ts";
import { readBucketOptions, type BucketOptions } from "../../src/throttle/bucket-options.ts";
import type { OwnedBucket } from "../../src/throttle/bucket.ts";
import { createBucket } from "../../src/throttle/create-bucket.ts";

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
  options: BucketOptions,
  { store = createMemoryStore(), name = "test" }: { store?: Store; name?: string } = {},
): TestBucket {
  const warnings: Warning[] = [];
  const log = (facts: object, message: string): void => {
    warnings.push({ facts, message });
  };
  const { policy, ...behaviour } = readBucketOptions("test", options);
  const replica = randomUUID();
  const bucket: OwnedBucket = createBucket({
    name,
    policy: compilePolicy("test", policy),
    store,
    replica,
    logger: { warn: log, error: log },
    listen: () =>
      store.listen(replica, (_name, news, key) => {
        if (news === "change") bucket.forget(key);
        bucket.lookIn(key);
      }),
    ...behaviour,
  });
  return { bucket, warnings };
}

import { createBuckets } from "../../src/buckets.ts";
import type { Store } from "../../src/core/store.ts";
import { createMemoryStore } from "../../src/memory/memory-store.ts";
import type { BucketOptions } from "../../src/throttle/bucket-options.ts";
import type { OwnedBucket } from "../../src/throttle/owned-bucket.ts";

interface Warning {
  readonly facts: object;
  readonly message: string;
}

export interface TestBucket {
  readonly bucket: OwnedBucket;
  readonly warnings: readonly Warning[];
}

interface TestBucketParts {
  readonly store?: Store;
  readonly name?: string;
  /** Its keys are spread over parts, as in a cluster. */
  readonly isSpread?: boolean;
}

/** A bucket of one replica, in memory unless a store is given. */
export function createTestBucket(
  options: BucketOptions,
  { store = createMemoryStore(), name = "test", isSpread = false }: TestBucketParts = {},
): TestBucket {
  const warnings: Warning[] = [];
  const log = (facts: object, message: string): void => {
    warnings.push({ facts, message });
  };
  const logger = { warn: log, error: log };
  const buckets = createBuckets({ store, logger, isRemote: false, isCluster: isSpread });
  return { bucket: buckets.open("test", name, options), warnings };
}

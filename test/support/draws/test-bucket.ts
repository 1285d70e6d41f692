import { createBuckets } from "../../../src/sluice/buckets.ts";
import type { Logger } from "../../../src/core/logger.ts";
import type { Store } from "../../../src/core/store.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createMemoryStore } from "../../../src/stores/memory/memory-store.ts";
import type { BucketOptions } from "../../../src/throttle/bucket/bucket-options.ts";
import type { OwnedBucket } from "../../../src/throttle/bucket.ts";

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
  /** Which replica it is of. */
  readonly replica?: string;
  /** Its keys are spread over parts, as in a cluster. */
  readonly isSpread?: boolean;
  /** Instead of the one that lists the warnings. */
  readonly logger?: Logger;
}

/** A bucket of one replica, in memory unless a store is given. */
export function createTestBucket(options: BucketOptions, parts: TestBucketParts = {}): TestBucket {
  const warnings: Warning[] = [];
  const log = (facts: object, message: string): void => {
    warnings.push({ facts, message });
  };
  const { store = createMemoryStore(), name = "test", replica = "test", isSpread = false } = parts;
  const { logger = { warn: log, error: log } } = parts;
  const buckets = createBuckets({
    store,
    insight: createMemoryInsight(),
    logger,
    isRemote: false,
    isCluster: isSpread,
  });
  return { bucket: buckets.open(replica, name, options), warnings };
}

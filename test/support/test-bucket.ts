import { randomUUID } from "node:crypto";
import { compilePolicy } from "../../src/core/policy.ts";
import type { Store } from "../../src/core/store.ts";
import { createMemoryStore } from "../../src/memory/memory-store.ts";
import { readBucketOptions, type BucketOptions } from "../../src/throttle/bucket-options.ts";
import type { OwnedBucket } from "../../src/throttle/bucket.ts";
import { createBucket } from "../../src/throttle/create-bucket.ts";
import { createSpreadBucket } from "../../src/throttle/spread-bucket.ts";

export interface Warning {
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
  const { policy, ...behaviour } = readBucketOptions("test", options);
  const replica = randomUUID();
  const places = new Map<string, OwnedBucket>();
  const onOpen = (place: string, part: OwnedBucket): unknown => places.set(place, part);
  const parts = {
    name,
    policy: compilePolicy("test", policy),
    store,
    replica,
    logger: { warn: log, error: log },
    listen: () =>
      store.listen(replica, (place, news, key) => {
        const part = places.get(place);
        if (news === "change") part?.forget(key);
        part?.lookIn(key);
      }),
    ...behaviour,
  };
  const bucket = isSpread ? createSpreadBucket({ ...parts, onOpen }) : createBucket(parts);
  if (!isSpread) onOpen(name, bucket);
  return { bucket, warnings };
}

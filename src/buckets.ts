import { randomUUID } from "node:crypto";
import { seldom, type Logger } from "./core/logger.ts";
import { compilePolicy } from "./core/policy/policy.ts";
import type { Store } from "./core/store.ts";
import { assertSame, assertSamePolicy, type Declaration } from "./declarations.ts";
import { createMemoryStore } from "./memory/memory-store.ts";
import { readBucketOptions, type BucketOptions } from "./throttle/bucket-options.ts";
import type { BucketParts } from "./throttle/bucket-parts.ts";
import { createBucket } from "./throttle/create-bucket.ts";
import type { OwnedBucket } from "./throttle/owned-bucket.ts";
import { createSpreadBucket } from "./throttle/spread-bucket.ts";

/** The buckets of one sluice. */
export interface Buckets {
  /**
   * The bucket of this name, the same object each time.
   *
   * @throws {@link InvalidOptionError} when the options can never work, or the bucket was opened with others.
   */
  open(where: string, name: string, options: BucketOptions): OwnedBucket;
  of(name: string): OwnedBucket | undefined;
  /** The store answers again: whoever waits for it asks anew. */
  lookIn(): void;
  close(): Promise<void>;
}

export interface BucketsParts {
  readonly store: Store;
  readonly logger: Logger;
  /** Whether the store lies in Redis, and whether that is a cluster. */
  readonly isRemote: boolean;
  readonly isCluster: boolean;
}

export function createBuckets(parts: BucketsParts): Buckets {
  const { store, logger, isRemote, isCluster } = parts;
  const replica = randomUUID();
  const buckets = new Map<string, OwnedBucket>();
  /** The same, or their parts, by what the store knows them by. */
  const places = new Map<string, OwnedBucket>();
  /** What each bucket was opened with first. */
  const declarations = new Map<string, Declaration>();
  let isListening = false;

  /** Once for all buckets: a listener is a connection of its own. */
  function listen(): void {
    if (isListening) return;
    isListening = true;
    store.listen(replica, (place, news, key) => {
      const bucket = places.get(place);
      if (news === "change") bucket?.forget(key);
      bucket?.lookIn(key, news);
    });
  }

  /** Keys that share nothing may lie on all nodes of a cluster. */
  function create(bucketParts: BucketParts): OwnedBucket {
    const onOpen = (place: string, bucket: OwnedBucket): unknown => places.set(place, bucket);
    const isSpread = isCluster && bucketParts.policy.limits.length === 0;
    if (isSpread) return createSpreadBucket({ ...bucketParts, onOpen });
    const bucket = createBucket(bucketParts);
    onOpen(bucketParts.name, bucket);
    return bucket;
  }

  return {
    open(where, name, given) {
      const { policy: unread, ...behaviour } = readBucketOptions(where, given);
      const policy = compilePolicy(where, unread);
      const { feedback, ...others } = behaviour;
      // Functions and tiers are all alike in the policy's text.
      const perKey = policy.perKey?.isLocal === true ? given.perKey : undefined;
      const declaration: Declaration = { ...others, ...feedback, perKey };
      const found = buckets.get(name);
      if (found !== undefined) {
        assertSame(where, "bucket", { first: declarations.get(name)!, later: declaration });
        assertSamePolicy(where, given, { first: found.policy, later: policy });
        return found;
      }
      const openLocalStore = isRemote ? createMemoryStore : undefined;
      // One for all parts of a bucket: what goes wrong with one goes wrong with each.
      const common = {
        store,
        replica,
        logger: seldom(logger, () => performance.now()),
        listen,
        openLocalStore,
      };
      const bucket = create({ name, policy, ...common, ...behaviour });
      buckets.set(name, bucket);
      declarations.set(name, declaration);
      return bucket;
    },
    of: (name) => buckets.get(name),
    lookIn() {
      for (const bucket of buckets.values()) bucket.lookIn();
    },
    async close() {
      await Promise.all([...buckets.values()].map((bucket) => bucket.close()));
    },
  };
}

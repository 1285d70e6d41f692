import type { LeakyBucket } from "../core/limits/leaky-bucket.ts";
import type { Logger } from "../core/logger.ts";
import { formatPolicy, isSamePolicy } from "../core/policy.ts";

/**
 * The newest policy of a bucket that this process knows of. The newest
 * declaration wins everywhere: each draw carries what its process knows, so
 * that even a Redis that lost everything learns it again.
 */
export interface KnownPolicy {
  readonly policy: LeakyBucket;
  /** 0 until the bucket has answered once. */
  readonly generation: number;
  learn(policy: LeakyBucket, generation: number): void;
}

export function createKnownPolicy(
  bucket: string,
  declared: LeakyBucket,
  logger: Logger,
): KnownPolicy {
  let policy = declared;
  let generation = 0;
  let hasWarned = false;

  return {
    get policy() {
      return policy;
    },
    get generation() {
      return generation;
    },
    learn(newest, newestGeneration) {
      if (newestGeneration <= generation) return;
      policy = newest;
      generation = newestGeneration;
      if (hasWarned || isSamePolicy(declared, newest)) return;
      hasWarned = true;
      logger.warn(
        { bucket, declared: formatPolicy(declared), inForce: formatPolicy(newest) },
        `Bucket "${bucket}" was declared here with ${formatPolicy(declared)}, and later elsewhere with ` +
          `${formatPolicy(newest)}. The newest holds for all; give every process the same policy.`,
      );
    },
  };
}

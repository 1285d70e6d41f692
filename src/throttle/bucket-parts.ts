import type { Logger } from "../core/logger.ts";
import type { Policy } from "../core/policy/policy.ts";
import type { Store } from "../core/store.ts";
import type { FeedbackOptions } from "./feedback-options.ts";
import type { OnStateLost, OnStoreDown } from "./outage/outage-options.ts";
import type { OpenLocalStore } from "./outage/stand-ins.ts";
import type { Refusals } from "./refusals.ts";

/** What the parts of one bucket have in common, in this process. */
interface CommonParts {
  /** How many wait in all of them. */
  readonly waiting: () => number;
  /** One for all: it takes its room at once. */
  readonly refusals: Refusals;
}

/** What a bucket is made of. */
export interface BucketParts {
  readonly name: string;
  readonly policy: Policy;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
  readonly maxWaiting?: number | undefined;
  readonly feedback?: FeedbackOptions | undefined;
  readonly onStoreDown?: OnStoreDown | undefined;
  readonly onStateLost?: OnStateLost | undefined;
  /** What calls go on with when the store does not answer; left out where it always does. */
  readonly openLocalStore?: OpenLocalStore | undefined;
  /** Lets the bucket hear of leases that come free, and of changes; called when it is first drawn from. */
  readonly listen?: (() => void) | undefined;
  /** What it has in common with the other parts, where it is a part of a bucket. */
  readonly common?: CommonParts | undefined;
}

import { z } from "zod";
import { readOptions, wholeNumber } from "../core/options.ts";
import type { PolicyOptions } from "../core/policy.ts";
import { FEEDBACK_SHAPE, type FeedbackOptions } from "./feedback-options.ts";

/** What `bucket()` takes: the policy, and what each process does with it. */
export interface BucketOptions extends PolicyOptions, FeedbackOptions {
  /**
   * How many callers may wait in this process; low calls are refused at 70 % of it, normal ones at 80 %,
   * high ones at 90 %, with `LineFullError`. Defaults to no bound.
   */
  readonly maxWaiting?: number | undefined;
}

/** The same, with what each process does for itself apart. */
export interface ReadBucketOptions {
  readonly policy: unknown;
  readonly maxWaiting: number | undefined;
  readonly feedback: FeedbackOptions;
}

/** What the policy holds is read by `compilePolicy`. */
const ANYTHING = z.unknown().optional();
const BUCKET_OPTIONS = z.strictObject({
  rate: ANYTHING,
  burst: ANYTHING,
  concurrency: ANYTHING,
  limits: ANYTHING,
  perKey: ANYTHING,
  shares: ANYTHING,
  ...FEEDBACK_SHAPE,
  maxWaiting: wholeNumber(1, 100_000_000, "callers").optional(),
});

export const BUCKET_OPTION_NAMES: readonly string[] = Object.keys(BUCKET_OPTIONS.shape);

export function readBucketOptions(where: string, given: unknown): ReadBucketOptions {
  const read = readOptions(where, BUCKET_OPTIONS, given);
  const { maxWaiting, feedback, maxCooldownMs, adaptive, pace, ...policy } = read;
  return { policy, maxWaiting, feedback: { feedback, maxCooldownMs, adaptive, pace } };
}

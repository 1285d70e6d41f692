import * as z from "zod";
import type { RateInput } from "../../core/limits/rate.ts";
import { readOptions, wholeNumber } from "../../core/input/options.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import { FEEDBACK_SHAPE, type FeedbackOptions } from "../call-options.ts";
import { BREAKER, type BreakerSettings } from "../outage/breaker.ts";
import { CALL_DEFAULTS_SHAPE, type CallDefaultsOptions } from "../wrap/call-defaults.ts";
import {
  ON_STATE_LOST,
  ON_STORE_DOWN,
  type OnStateLost,
  type OnStoreDown,
} from "../outage/on-store-down.ts";

/** Options of `bucket()`: the policy, and how each process applies it. */
export interface BucketOptions<
  Rate extends RateInput = RateInput,
  KeyRate extends RateInput = RateInput,
>
  extends PolicyOptions<Rate, KeyRate>, FeedbackOptions, CallDefaultsOptions {
  /**
   * The most callers that may wait in this process. Calls reject with `LineFullError` as soon as a part of this number
   * waits: 70 % for calls with low priority, 80 % for normal, 90 % for high and 100 % for critical. Defaults to no
   * bound.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * What happens to calls while Redis does not reply. Defaults to `"refuse"`. Jobs of workers wait with every setting
   * except `local`.
   *
   * - `"refuse"` rejects calls with `StoreUnavailableError`.
   * - `"wait"` makes calls wait until Redis replies again.
   * - `{ local: 0.5 }` continues at half of this process's share of the rate.
   * - `"open"` lets calls pass without any limit.
   */
  readonly onStoreDown?: OnStoreDown | undefined;
  /**
   * Stops the bucket while its downstream is unreachable. Failed connections, timeouts, and a 502, 503 or 504 from a
   * proxy count as failures. After `failures` of them in a row, no call or job starts for `coolMs`. Then one job at a
   * time runs as a probe. After each failed probe, the wait doubles, up to `maxCoolMs`.
   *
   * Defaults to `{ failures: 5, coolMs: 1_000, maxCoolMs: 60_000 }`, where only the jobs of queues count. If you set
   * this option, other calls count too. `false` turns the breaker off.
   */
  readonly breaker?: BreakerSettings | false | undefined;
  /**
   * How the bucket starts after Redis has lost the bucket's state. With `"empty"`, no burst is available at first, as
   * if one had just passed. With `"full"`, a whole burst may pass at once. Defaults to `"empty"`.
   */
  readonly onStateLost?: OnStateLost | undefined;
}

/** Validated bucket options. `policy` is separate, because `compilePolicy` validates it later. */
export interface ReadBucketOptions {
  readonly policy: unknown;
  readonly maxWaiting: number | undefined;
  readonly feedback: FeedbackOptions;
  readonly calls: CallDefaultsOptions | undefined;
  readonly breaker: BreakerSettings | false | undefined;
  readonly onStoreDown: OnStoreDown | undefined;
  readonly onStateLost: OnStateLost | undefined;
}

/** Used for the options of the policy, which `compilePolicy` validates later. */
const ANYTHING = z.unknown().optional();
const BUCKET_OPTIONS = z.strictObject({
  rate: ANYTHING,
  burst: ANYTHING,
  shadow: ANYTHING,
  concurrency: ANYTHING,
  limits: ANYTHING,
  perKey: ANYTHING,
  shares: ANYTHING,
  fair: ANYTHING,
  ...FEEDBACK_SHAPE,
  ...CALL_DEFAULTS_SHAPE,
  maxWaiting: wholeNumber(1, 100_000_000, "callers").optional(),
  breaker: BREAKER.optional(),
  onStoreDown: ON_STORE_DOWN.optional(),
  onStateLost: ON_STATE_LOST.optional(),
});

export const BUCKET_OPTION_NAMES: readonly string[] = Object.keys(BUCKET_OPTIONS.shape);

const POOL_OPTIONS = BUCKET_OPTIONS.extend({
  members: ANYTHING,
  prefer: ANYTHING,
  stickyBy: ANYTHING,
  stickyMs: ANYTHING,
});

/** Reads the options of a bucket, or of a pool if `isPool` is true. */
export function readBucketOptions(
  where: string,
  given: unknown,
  isPool: boolean = false,
): ReadBucketOptions {
  const schema: typeof BUCKET_OPTIONS = isPool ? POOL_OPTIONS : BUCKET_OPTIONS;
  const read = readOptions(where, schema, given);
  const { maxWaiting, breaker, onStoreDown, onStateLost, ...others } = read;
  const { feedback, maxCooldownMs, adaptive, pace, cost, settle, ...policy } = others;
  const feedbackOptions = { feedback, maxCooldownMs, adaptive, pace };
  const calls = cost === undefined && settle === undefined ? undefined : { cost, settle };
  const known = { calls, maxWaiting, breaker, onStoreDown, onStateLost };
  return { policy, feedback: feedbackOptions, ...known };
}

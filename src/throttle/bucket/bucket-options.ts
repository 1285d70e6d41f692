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
   * The most callers that may wait in this process. Low calls reject with `LineFullError` from 70 % of it, normal calls
   * from 80 %, high calls from 90 %. Defaults to no bound.
   */
  readonly maxWaiting?: number | undefined;
  /**
   * What happens to calls while Redis does not reply. `"refuse"` rejects them with `StoreUnavailableError`, `"wait"`
   * makes them wait, `{ local: 0.5 }` continues at half of this process's share of the rate, and `"open"` lets them pass
   * without any limit. Jobs of workers wait, except with `local`. Defaults to `"refuse"`.
   */
  readonly onStoreDown?: OnStoreDown | undefined;
  /**
   * When the bucket stops because its downstream is unreachable: connections fail, responses time out, or a proxy
   * returns 502, 503 or 504. After `failures` of these in a row, nothing starts for `coolMs`. Then one job at a time probes, each
   * time after twice as long, up to `maxCoolMs`. Defaults to `{ failures: 5, coolMs: 1_000, maxCoolMs: 60_000 }` for the
   * jobs of queues. If you set it, other calls count too. `false` turns it off.
   */
  readonly breaker?: BreakerSettings | false | undefined;
  /**
   * How the bucket starts when Redis has lost its state: `"empty"` as if a burst had just left, `"full"` as if none
   * had. Defaults to `"empty"`.
   */
  readonly onStateLost?: OnStateLost | undefined;
}

/** Validated bucket options. The policy is separate, and not yet validated. */
export interface ReadBucketOptions {
  readonly policy: unknown;
  readonly maxWaiting: number | undefined;
  readonly feedback: FeedbackOptions;
  readonly calls: CallDefaultsOptions | undefined;
  readonly breaker: BreakerSettings | false | undefined;
  readonly onStoreDown: OnStoreDown | undefined;
  readonly onStateLost: OnStateLost | undefined;
}

/** `compilePolicy` validates the policy. */
const ANYTHING = z.unknown().optional();
const BUCKET_OPTIONS = z.strictObject({
  rate: ANYTHING,
  burst: ANYTHING,
  shadow: ANYTHING,
  concurrency: ANYTHING,
  limits: ANYTHING,
  perKey: ANYTHING,
  shares: ANYTHING,
  ...FEEDBACK_SHAPE,
  ...CALL_DEFAULTS_SHAPE,
  maxWaiting: wholeNumber(1, 100_000_000, "callers").optional(),
  breaker: BREAKER.optional(),
  onStoreDown: ON_STORE_DOWN.optional(),
  onStateLost: ON_STATE_LOST.optional(),
});

export const BUCKET_OPTION_NAMES: readonly string[] = Object.keys(BUCKET_OPTIONS.shape);

export function readBucketOptions(where: string, given: unknown): ReadBucketOptions {
  const read = readOptions(where, BUCKET_OPTIONS, given);
  const { maxWaiting, breaker, onStoreDown, onStateLost, ...others } = read;
  const { feedback, maxCooldownMs, adaptive, pace, cost, settle, ...policy } = others;
  const feedbackOptions = { feedback, maxCooldownMs, adaptive, pace };
  const calls = cost === undefined && settle === undefined ? undefined : { cost, settle };
  const known = { calls, maxWaiting, breaker, onStoreDown, onStateLost };
  return { policy, feedback: feedbackOptions, ...known };
}

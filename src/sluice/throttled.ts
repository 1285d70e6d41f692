/**
 * The function `throttled()` for programs that create no sluice. Its buckets belong to a default
 * sluice of the process.
 */
import * as z from "zod";
import { NAME, readOptions } from "../core/input/options.ts";
import type { RateInput } from "../core/limits/rate.ts";
import { createSluice, type Sluice } from "./create-sluice.ts";
import { BUCKET_OPTION_NAMES, type BucketOptions } from "../throttle/bucket/bucket-options.ts";
import {
  THROTTLED_OPTION_NAMES,
  type AnyFunction,
  type CallOptions,
  type ResultOf,
  type ThrottledOptions,
} from "../throttle/call-options.ts";
import type { NotGeneric, Throttle, Throttled } from "../throttle/wrap/throttled-types.ts";

/**
 * The names of the options that `throttled()` passes to the bucket. `concurrency` and `feedback`
 * are excluded, because here they are options of the wrapped function.
 */
const OF_BUCKET: ReadonlySet<string> = new Set(
  BUCKET_OPTION_NAMES.filter((name) => name !== "concurrency" && name !== "feedback"),
);

/** Checks only the names of options. The bucket and the throttled function check the values. */
const THROTTLED_OPTIONS = z.strictObject({
  ...Object.fromEntries(
    [...OF_BUCKET, ...THROTTLED_OPTION_NAMES].map((name) => [name, z.unknown().optional()]),
  ),
  bucket: NAME,
});

let defaultSluice: Sluice | undefined;

type BucketOfThrottled<Rate extends RateInput, KeyRate extends RateInput> = Omit<
  BucketOptions<Rate, KeyRate>,
  "feedback" | "concurrency"
> & { readonly bucket: string };

/**
 * Wraps a function so that each call waits for a slot of the named bucket. The bucket belongs to
 * the process's default sluice, which reads the address of Redis from `$REDIS_URL`.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 * @throws {@link RedisRequiredError} in production, when `$REDIS_URL` is not set.
 */
export function throttled<
  F extends AnyFunction,
  const Rate extends RateInput = RateInput,
  const KeyRate extends RateInput = RateInput,
>(
  this: NotGeneric<F>,
  fn: F,
  options: BucketOfThrottled<Rate, KeyRate> & ThrottledOptions<F>,
): Throttled<F>;
/**
 * The overload for a generic function that does not return a promise. The wrapped function stays
 * generic. TypeScript cannot type the method `with` of this function, so use `run` of a bucket
 * instead.
 */
export function throttled<
  Args extends unknown[],
  Result,
  const Rate extends RateInput = RateInput,
  const KeyRate extends RateInput = RateInput,
>(
  fn: (...args: Args) => Result,
  options: BucketOfThrottled<Rate, KeyRate> & CallOptions<Args, ResultOf<Result>>,
): (...args: Args) => Promise<Awaited<Result>>;
/**
 * The overload for code in which the function type is itself a type parameter. Such code must name
 * the type: `throttled<F>(fn, …)`.
 */
export function throttled<
  F extends AnyFunction,
  const Rate extends RateInput = RateInput,
  const KeyRate extends RateInput = RateInput,
>(fn: F, options: BucketOfThrottled<Rate, KeyRate> & ThrottledOptions<F>): Throttled<F>;
export function throttled(
  fn: AnyFunction,
  options: BucketOfThrottled<RateInput, RateInput> & ThrottledOptions<AnyFunction>,
): unknown {
  const { bucket, ...rest } = readOptions("throttled()", THROTTLED_OPTIONS, options);
  const isOfBucket = ([name]: [string, unknown]): boolean => OF_BUCKET.has(name);
  const entries = Object.entries(rest);
  const policy = Object.fromEntries(entries.filter(isOfBucket));
  const calls = Object.fromEntries(entries.filter((entry) => !isOfBucket(entry)));
  defaultSluice ??= createSluice();
  const wrapping: Throttle = defaultSluice.bucket(bucket, policy).throttled;
  return wrapping(fn, calls as ThrottledOptions<AnyFunction>);
}

import * as z from "zod";
import type { RateInput } from "./core/limits/rate.ts";
import { NAME, readOptions } from "./core/options.ts";
import { createSluice, type Sluice } from "./sluice.ts";
import { BUCKET_OPTION_NAMES, type BucketOptions } from "./throttle/bucket/bucket-options.ts";
import {
  THROTTLED_OPTION_NAMES,
  type Throttled,
  type ThrottledOptions,
} from "./throttle/call-options.ts";

/** The options of the bucket; `concurrency` and `feedback` are those of the wrapped function. */
const OF_BUCKET: ReadonlySet<string> = new Set(
  BUCKET_OPTION_NAMES.filter((name) => name !== "concurrency" && name !== "feedback"),
);

/** Checks names only: the values are read where buckets and throttled functions are made. */
const OPTIONS = z.strictObject({
  ...Object.fromEntries(
    [...OF_BUCKET, ...THROTTLED_OPTION_NAMES].map((name) => [name, z.unknown().optional()]),
  ),
  bucket: NAME,
});

let defaultSluice: Sluice | undefined;

/**
 * Wraps a function: each call waits for a slot of the named bucket. The bucket is of a default sluice, one
 * for the whole process, which finds Redis by `$REDIS_URL`.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function throttled<
  F extends (...args: never[]) => unknown,
  const Rate extends RateInput = RateInput,
  const KeyRate extends RateInput = RateInput,
>(
  fn: F,
  options: Omit<BucketOptions<Rate, KeyRate>, "feedback" | "concurrency"> &
    ThrottledOptions<F> & { readonly bucket: string },
): Throttled<F> {
  const { bucket, ...rest } = readOptions("throttled()", OPTIONS, options);
  const isOfBucket = ([name]: [string, unknown]): boolean => OF_BUCKET.has(name);
  const entries = Object.entries(rest);
  const policy = Object.fromEntries(entries.filter(isOfBucket));
  const calls = Object.fromEntries(entries.filter((entry) => !isOfBucket(entry)));
  defaultSluice ??= createSluice();
  return defaultSluice.bucket(bucket, policy).throttled(fn, calls as ThrottledOptions<F>);
}

import { z } from "zod";
import { NAME, readOptions } from "./core/options.ts";
import type { PolicyOptions } from "./core/policy.ts";
import { createSluice, type Sluice } from "./sluice.ts";
import type { Throttled, ThrottledOptions } from "./throttle/throttled.ts";

/** The rest is read where buckets and throttled functions are made. */
const OPTIONS = z.looseObject({
  bucket: NAME,
  rate: z.custom<PolicyOptions["rate"]>(),
  burst: z.custom<PolicyOptions["burst"]>().optional(),
});

let defaultSluice: Sluice | undefined;

/**
 * Wraps a function on a sluice of the process's own, which finds Redis by `$REDIS_URL`:
 * each call waits for a slot of the named bucket.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function throttled<F extends (...args: never[]) => unknown>(
  fn: F,
  options: PolicyOptions & ThrottledOptions<F> & { readonly bucket: string },
): Throttled<F> {
  const { bucket, rate, burst, ...rest } = readOptions("throttled()", OPTIONS, options);
  defaultSluice ??= createSluice();
  return defaultSluice.bucket(bucket, { rate, burst }).throttled(fn, rest);
}

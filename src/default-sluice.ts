import type { PolicyOptions } from "./core/policy.ts";
import { createSluice, type Sluice } from "./sluice.ts";
import type { Throttled, ThrottledOptions } from "./throttle/throttled.ts";

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
  const { bucket, rate, burst, ...rest } = options;
  defaultSluice ??= createSluice();
  return defaultSluice
    .bucket(bucket, { rate, burst })
    .throttled(fn, rest as unknown as ThrottledOptions<F>);
}

import type { ScopeRequest } from "../../core/store.ts";
import { bucketKeys } from "../bucket-keys.ts";
import { limitsNumbers, termsNumbers } from "../numbers.ts";

/** What every script of a bucket needs beside its request. */
export interface Frame {
  readonly prefix: string;
  /** Set by tests only; production leaves the time to the server. */
  readonly pinnedUs?: number;
}

export function frameKeys(input: ScopeRequest & Frame): string[] {
  const { prefix, bucket, terms, key, keyLimits } = input;
  const keys = key === undefined ? [] : [{ key, limits: keyLimits }];
  return bucketKeys(prefix, bucket, terms.limits, keys);
}

/** Terms and keys, as `lua/lib/request.lua` reads them. */
export function frameNumbers({ terms, key, keyLimits }: ScopeRequest): number[] {
  const keys = key === undefined ? [0] : [1, ...limitsNumbers(keyLimits)];
  return [...termsNumbers(terms), ...keys];
}

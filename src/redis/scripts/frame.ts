import type { Limit } from "../../core/limits/limit.ts";
import type { KnownTerms } from "../../core/store.ts";
import { bucketKeys } from "../bucket-keys.ts";
import { limitsNumbers, termsNumbers } from "../numbers.ts";

/** What every script of a bucket needs. */
export interface Frame {
  readonly prefix: string;
  readonly bucket: string;
  readonly terms: KnownTerms;
  /** Set by tests only; production leaves the time to the server. */
  readonly pinnedUs?: number;
}

/** The one key, or none, that a script is about. */
export interface KeyFrame extends Frame {
  readonly key: string | undefined;
  readonly keyLimits: readonly Limit[];
}

export function frameKeys({ prefix, bucket, terms, key, keyLimits }: KeyFrame): string[] {
  const keys = key === undefined ? [] : [{ key, limits: keyLimits }];
  return bucketKeys(prefix, bucket, terms.limits, keys);
}

/** Terms and keys, as `lua/lib/request.lua` reads them. */
export function frameNumbers({ terms, key, keyLimits }: KeyFrame): number[] {
  const keys = key === undefined ? [0] : [1, ...limitsNumbers(keyLimits)];
  return [...termsNumbers(terms), ...keys];
}

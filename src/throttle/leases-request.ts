import type { LeasesRequest } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { Conditions } from "./conditions.ts";

/** Calls of one key and cost: what their leases are renewed and given back by. */
export interface LeaseHolder {
  /** The key, if it has limits of its own. */
  readonly key: string | undefined;
  readonly conditions: Conditions;
}

/** Lua takes some thousands of numbers at once. */
const MOST_AT_ONCE = 500;

/** Leases that something is to be asked for together. */
export class LeasesByHolder {
  readonly #leases = new Map<LeaseHolder, number[]>();

  add(lease: number, holder: LeaseHolder): void {
    const leases = this.#leases.get(holder);
    if (leases === undefined) this.#leases.set(holder, [lease]);
    else leases.push(lease);
  }

  /** As many of a holder at once as one request may name. */
  *inParts(): Iterable<readonly [LeaseHolder, readonly number[]]> {
    for (const [holder, leases] of this.#leases) {
      for (let start = 0; start < leases.length; start += MOST_AT_ONCE) {
        yield [holder, leases.slice(start, start + MOST_AT_ONCE)];
      }
    }
  }
}

/** By the limits that the leases were drawn under, whatever policy is in force by now. */
export function leasesRequest(
  { bucket, asker, known }: Basics,
  { key, conditions: { shared, keyLimits } }: LeaseHolder,
  leases: readonly number[],
): LeasesRequest {
  const terms = { ...known.terms, limits: shared };
  return { bucket, asker, terms, key, keyLimits, leases };
}

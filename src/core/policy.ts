import { formatLimit } from "./format-limit.ts";
import type { LimitsOptions } from "./limits-options.ts";
import type { Limit } from "./limits/limit.ts";
import type { KeyPolicy, PerKey } from "./per-key.ts";
import type { Priority } from "./priority.ts";

/** What a bucket is told about its downstream. */
export interface PolicyOptions extends LimitsOptions {
  /** Limits that each key has for itself: the same for all, by a function of the key, or from a table of tiers. */
  readonly perKey?: PerKey | undefined;
  /** How much of the horizon each priority may fill. Defaults to `{ low: 0.7, normal: 0.8, high: 0.9, critical: 1 }`. */
  readonly shares?: Partial<Readonly<Record<Priority, number>>> | undefined;
}

/** A policy in whole numbers. */
export interface Policy {
  /** What all keys share. */
  readonly limits: readonly Limit[];
  readonly perKey: KeyPolicy | undefined;
  /** Per mille of the horizon, in the order of `PRIORITIES`. */
  readonly shares: readonly number[];
  /** What tells two policies apart, and what other replicas learn this one by. */
  readonly text: string;
}

/** The policy as errors and warnings name it: `"100/s with a burst of 5"`, `"500/min + 25 at once; per key 5/s"`. */
export function formatPolicy({ limits, perKey }: Policy): string {
  const shared = limits.map(formatLimit).join(" + ");
  if (perKey === undefined) return shared;
  const each = perKey.fixed?.map(formatLimit).join(" + ") ?? "by its tier";
  return [shared, `per key ${each}`].filter((part) => part !== "").join("; ");
}

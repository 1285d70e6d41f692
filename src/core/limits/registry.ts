import { concurrency } from "./concurrency.ts";
import { fixedWindow } from "./fixed-window.ts";
import { leakyBucket } from "./leaky-bucket.ts";
import type { Limit, Rule } from "./limit.ts";
import { slidingLog } from "./sliding-log.ts";
import { slidingWindow } from "./sliding-window.ts";
import { tokenBucket } from "./token-bucket.ts";

/** State is opaque to all but its own rule. */
type AnyRule = Rule<unknown>;

/** Every kind of limit; `lua/lib/limits/` holds a twin of each, by its name. */
export const RULES: ReadonlyMap<string, AnyRule> = new Map(
  [leakyBucket, tokenBucket, slidingLog, slidingWindow, fixedWindow, concurrency].map((rule) => [
    rule.kind,
    rule as AnyRule,
  ]),
);

/** @throws {@link TypeError} for a kind that nothing registers; policies are checked before. */
export function ruleOf(kind: string): AnyRule {
  const rule = RULES.get(kind);
  if (rule === undefined) throw new TypeError(`no limit is called "${kind}"`);
  return rule;
}

/** Whether calls hold leases of a limit, for as long as they run. */
export function isLeased({ kind }: Limit): boolean {
  return !ruleOf(kind).isRate;
}

/** How many limits of the same kind stand before one. */
export function ordinalOf(limits: readonly Limit[], index: number): number {
  const { kind } = limits[index]!;
  return limits.slice(0, index).filter((limit) => limit.kind === kind).length;
}

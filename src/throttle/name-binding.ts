import { formatLimit } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import { COOLING, PAUSED, SLOWED } from "../core/store.ts";

const NAMES: ReadonlyMap<number, string> = new Map([
  [COOLING, "a cooldown"],
  [PAUSED, "a pause"],
  [SLOWED, "a rate that answers have slowed"],
]);

/** What holds a call back, as its user is told: `"100/s"`; undefined if it is the line alone. */
export function nameBinding(bindsAt: number, limits: readonly Limit[]): string | undefined {
  const limit = limits[bindsAt - 1];
  return limit === undefined ? NAMES.get(bindsAt) : formatLimit(limit);
}

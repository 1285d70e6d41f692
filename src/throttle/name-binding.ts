import { SHUT } from "../core/draw-messages.ts";
import { formatLimit } from "../core/format-limit.ts";
import type { Limit } from "../core/limits/limit.ts";

/** What holds a call back, as its user is told: `"100/s"`; undefined if it is the line alone. */
export function nameBinding(bindsAt: number, limits: readonly Limit[]): string | undefined {
  if (bindsAt === SHUT) return "a cooldown or pause";
  const limit = limits[bindsAt - 1];
  return limit && formatLimit(limit);
}

import { headerOf } from "./headers.ts";
import { readDelayMs, readHttpDateMs } from "./retry-after.ts";

/**
 * What time it is, in epoch ms, for whoever wrote these headers: their `Date`, and
 * their `Age` if they were kept in a cache; our own clock if they have no sound one.
 * Moments that an answer names are by that clock, and ours may be an hour off.
 */
export function readServerTimeMs(headers: unknown, wallNowMs: number): number {
  const sentAtMs = readHttpDateMs(headerOf(headers, "date"), wallNowMs);
  if (sentAtMs === undefined) return wallNowMs;
  return sentAtMs + (readDelayMs(headerOf(headers, "age"), 1_000) ?? 0);
}

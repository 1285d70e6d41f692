import type { Arrival } from "../core/queue-store.ts";
import type { Slot } from "../throttle/slot.ts";
import type { Job } from "./job.ts";

/** A slot that came so soon was not waited for. */
const AT_ONCE_MS = 20;

/** A job that was let through alone tells whether its key has room again. */
export function probeOf(
  { key }: Job<unknown>,
  arrival: Arrival,
  { waitedMs }: Slot,
): { key: string; wentAtOnce: boolean } | undefined {
  if (key === undefined || arrival !== "probe") return undefined;
  return { key, wentAtOnce: waitedMs < AT_ONCE_MS };
}

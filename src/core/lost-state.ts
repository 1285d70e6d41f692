import type { BucketState } from "./bucket-state.ts";
import { nobodyAt, type Limit } from "./limits/limit.ts";
import { ruleOf } from "./limits/registry.ts";
import type { Scope } from "./scope.ts";
import { remainingOf } from "./standing.ts";
import type { DrawRequest } from "./draw-messages.ts";

/**
 * What follows when Redis has lost what a bucket had let pass: a restart without its log, a failover
 * to a replica that lagged behind, an operator's mistake. Twin of `lua/lib/lost-state.lua`.
 */

/** A bucket that was drawn from is kept for this long at least. */
const KEPT_US = 3_600_000_000;
/** A window up to this long counts as used up; a longer one that was lost must not block a day. */
const SHORT_US = 60_000_000;

/** As the time of an asker's last draw: it has let calls pass that the bucket knows nothing of. */
export const DREW_ELSEWHERE_US: number = 2 ** 52;

/** Whether the asker knows of draws, or of a policy, that the bucket has forgotten. */
export function isStateLost(
  found: BucketState | undefined,
  { drewUs, startsFull, terms }: Pick<DrawRequest, "drewUs" | "startsFull" | "terms">,
  serverUs: number,
): boolean {
  if (drewUs === 0 || startsFull === true) return false;
  // One that nobody drew from for so long has expired, and had drained long before.
  if (found === undefined) return serverUs < drewUs + KEPT_US;
  return drewUs > found.clockUs || terms.version > found.version;
}

/** Books all that the limits would let pass at once, as if a burst had just left. */
export function startEmptyHanded(scope: Scope, nowUs: number): void {
  const atUs = Math.max(nowUs, scope.lastUs);
  for (const { limit, state } of scope.records) {
    if (!canStartEmptyHanded(limit)) continue;
    const spare = remainingOf(limit, state, atUs);
    if (spare > 0) ruleOf(limit.kind).commit(limit, state, atUs, spare, nobodyAt(nowUs));
  }
}

function canStartEmptyHanded({ kind, periodUs }: Limit): boolean {
  const { isRate, doesDrain = false } = ruleOf(kind);
  return isRate && (doesDrain || periodUs <= SHORT_US);
}

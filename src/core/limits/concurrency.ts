import type { Drawer, Rule } from "./rule.ts";

/** What a concurrency limit keeps. `core/draw/leases.ts` renews and releases it; no other code knows it. */
export interface Leases {
  /** The name of each lease, and the µs at which it ends. */
  leases: Map<string, number>;
  /** Those that wait for a lease, as "since asker", and when each asked last. */
  waiters: Map<string, number>;
}

/** A waiting asker asks every half second; one that was not seen for this long is gone. */
const WAITER_GONE_US = 1_500_000;

/**
 * Concurrency by leases: at most `count` calls at once, whatever their cost.
 * A free lease belongs to the asker that has waited longest.
 * Twin of `lua/lib/limits/concurrency.lua`.
 */
export const concurrency: Rule<Leases> = {
  kind: "concurrency",
  code: 6,
  parts: ["leases", "waiters"],
  capacityName: "max",
  isKept: true,
  isRate: false,
  format: ({ count }) => `${count} at once`,
  fresh: () => ({ leases: new Map(), waiters: new Map() }),
  earliest({ count }, state, atUs, cost, drawer) {
    // Its lease was drawn before: it must not wait behind those that wait for one.
    if (cost === 0) return atUs;
    forgetBefore(state.leases, drawer.nowUs);
    forgetBefore(state.waiters, drawer.nowUs - WAITER_GONE_US);
    return state.leases.size + countBefore(state, drawer) + cost <= count ? atUs : Infinity;
  },
  commit({ periodUs }, { leases }, atUs, cost, { asker, lease }) {
    if (cost <= 0) return;
    leases.set(leaseName(asker, lease), atUs + periodUs);
  },
  keepPlace({ waiters }, { asker, nowUs, sinceUs }) {
    waiters.set(waiterName(sinceUs, asker), nowUs);
  },
  leavePlace({ waiters }, { asker, sinceUs }) {
    waiters.delete(waiterName(sinceUs, asker));
  },
};

export function leaseName(asker: string, lease: number): string {
  return `${asker} ${lease}`;
}

/** The start of the wait comes first, in a fixed number of digits, so that names sort by how long their askers have waited. */
function waiterName(sinceUs: number, asker: string): string {
  return `${String(sinceUs).padStart(16, "0")} ${asker}`;
}

/** The names of the askers that wait, the longest wait first. It changes nothing. */
export function waitersOf({ waiters }: Leases, nowUs: number): string[] {
  const present = [...waiters].filter(([, askedUs]) => askedUs > nowUs - WAITER_GONE_US);
  return present.map(([name]) => name).sort();
}

/** How many leases calls still hold. It changes nothing. */
export function countLeases({ leases }: Leases, nowUs: number): number {
  let count = 0;
  for (const endUs of leases.values()) if (endUs > nowUs) count += 1;
  return count;
}

/** How many askers have waited longer than this one; all of them if it does not wait. */
function countBefore({ waiters }: Leases, { asker, sinceUs }: Drawer): number {
  const own = waiterName(sinceUs, asker);
  let before = 0;
  for (const waiter of waiters.keys()) if (sinceUs === 0 || waiter < own) before += 1;
  return before;
}

function forgetBefore(times: Map<string, number>, untilUs: number): void {
  for (const [name, atUs] of times) if (atUs <= untilUs) times.delete(name);
}

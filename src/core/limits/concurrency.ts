import type { Drawer, Rule } from "./rule.ts";

/** What a concurrency limit keeps. `core/draw/leases.ts` renews and releases it; no other code knows it. */
export interface Leases {
  /** The name of each lease, and the µs at which it ends. */
  leases: Map<string, number>;
  /** Those that wait for a lease, as "order asker", and when each asked last. */
  waiters: Map<string, number>;
}

/** A waiting asker asks every half second; one that was not seen for this long is gone. */
const WAITER_GONE_US = 1_500_000;

/**
 * Concurrency by leases: at most `count` calls at once, whatever their cost.
 * A free lease belongs to the most urgent call, and of those to the one that has waited longest.
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
  keepPlace({ waiters }, { asker, nowUs, order }) {
    waiters.set(waiterName(order, asker), nowUs);
  },
  leavePlace({ waiters }, { asker, order }) {
    waiters.delete(waiterName(order, asker));
  },
};

export function leaseName(asker: string, lease: number): string {
  return `${asker} ${lease}`;
}

/** The order comes first, in a fixed number of digits, so that names sort by it. */
function waiterName(order: number, asker: string): string {
  return `${String(order).padStart(16, "0")} ${asker}`;
}

/** The names of the askers that wait, in their order. It changes nothing. */
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

/** How many other askers come before this one; all of them if it comes last. */
function countBefore({ waiters }: Leases, { asker, order }: Drawer): number {
  const own = waiterName(order, asker);
  let before = 0;
  for (const waiter of waiters.keys()) {
    if (!waiter.endsWith(` ${asker}`) && (order === 0 || waiter < own)) before += 1;
  }
  return before;
}

function forgetBefore(times: Map<string, number>, untilUs: number): void {
  for (const [name, atUs] of times) if (atUs <= untilUs) times.delete(name);
}

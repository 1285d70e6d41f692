import type { Drawer, Rule } from "./rule.ts";

/** The state of a concurrency limit. Only `core/draw/leases.ts` renews and releases leases. */
export interface Leases {
  /** By the name of a lease: its end in µs. */
  leases: Map<string, number>;
  /** By `"order asker"` of a waiting caller: when it last asked. */
  waiters: Map<string, number>;
}

/** A waiting caller asks every half second. One that has not asked for this long is gone. */
const WAITER_GONE_US = 1_500_000;

/**
 * Concurrency by leases: at most `count` calls run at once, whatever their cost. The most urgent call gets a free
 * lease. Among equally urgent calls, the one that has waited longest gets it. Twin of `lua/lib/limits/concurrency.lua`.
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
    // A call that already has a lease does not wait for another one.
    if (cost === 0) return atUs;
    forgetBefore(state.leases, drawer.nowUs);
    forgetBefore(state.waiters, drawer.nowUs - WAITER_GONE_US);
    return state.leases.size + countBefore(state, drawer) + cost <= count ? atUs : Infinity;
  },
  commit({ periodUs }, { leases }, atUs, cost, { asker, lease }) {
    if (cost <= 0) return;
    leases.set(leaseName(asker, lease), atUs + periodUs);
  },
  keepPosition({ waiters }, { asker, nowUs, order }) {
    waiters.set(waiterName(order, asker), nowUs);
  },
  leavePosition({ waiters }, { asker, order }) {
    waiters.delete(waiterName(order, asker));
  },
};

export function leaseName(asker: string, lease: number): string {
  return `${asker} ${lease}`;
}

/** The order comes first with a fixed number of digits, so that names sort by it. */
function waiterName(order: number, asker: string): string {
  return `${String(order).padStart(16, "0")} ${asker}`;
}

/** The names of the waiting callers, in order. Changes nothing. */
export function waitersOf({ waiters }: Leases, nowUs: number): string[] {
  const present = [...waiters].filter(([, askedUs]) => askedUs > nowUs - WAITER_GONE_US);
  return present.map(([name]) => name).sort();
}

/** The number of leases in use. Changes nothing. */
export function countLeases({ leases }: Leases, nowUs: number): number {
  let count = 0;
  for (const endUs of leases.values()) if (endUs > nowUs) count += 1;
  return count;
}

/** The number of waiting callers that come before this one. All of them, if this one comes last. */
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

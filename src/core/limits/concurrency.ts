import type { Rule } from "./rule.ts";

interface State {
  /** Lease to the µs at which it ends. */
  leases: Map<string, number>;
  /** Who waits for a lease, as "since asker", and when it asked last. */
  waiters: Map<string, number>;
}

/** One that waits for a lease looks in every half second; without a word for so long it is gone. */
export const WAITER_GONE_US = 1_500_000;

/**
 * Concurrency by leases: at most `count` calls at once, whatever their cost.
 * A lease that is free belongs to whoever has waited longest.
 */
export const concurrency: Rule<State> = {
  kind: "concurrency",
  code: 6,
  parts: ["leases", "waiters"],
  isKept: true,
  isRate: false,
  format: ({ count }) => `${count} at once`,
  fresh: () => ({ leases: new Map(), waiters: new Map() }),
  earliest({ count }, { leases, waiters }, atUs, cost, { asker, nowUs, sinceUs }) {
    forget(leases, nowUs);
    forget(waiters, nowUs - WAITER_GONE_US);
    const own = waiterName(sinceUs, asker);
    let before = 0;
    for (const waiter of waiters.keys()) {
      if (sinceUs === 0 || waiter < own) before += 1;
    }
    return leases.size + before + cost <= count ? atUs : Infinity;
  },
  commit({ periodUs }, { leases }, atUs, cost, drawer) {
    if (cost < 0) return;
    leases.set(leaseName(drawer.asker, drawer.lease), atUs + periodUs);
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

/** Since when it waits comes first, in as many digits each time: names stand in the order of their waits. */
function waiterName(sinceUs: number, asker: string): string {
  return `${String(sinceUs).padStart(16, "0")} ${asker}`;
}

function forget(times: Map<string, number>, untilUs: number): void {
  for (const [name, atUs] of times) if (atUs <= untilUs) times.delete(name);
}

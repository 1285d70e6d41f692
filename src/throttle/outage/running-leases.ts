import { isLeased } from "../../core/limits/registry.ts";
import type { Drawn, DrawRequest } from "../../core/store.ts";

/** The leases of calls that run here, by who gave them; undefined stands for Redis. */
export interface RunningLeases<Holder> {
  /** Takes in what a reply to a draw has granted. */
  add(request: DrawRequest, reply: Drawn, holder: Holder | undefined): void;
  remove(leases: readonly number[]): void;
  /** How many of one holder: all, or those of a key. */
  countIn(holder: Holder | undefined, key?: string): number;
  /** Leases that are not known are taken to be Redis'. */
  byHolder(leases: readonly number[]): ReadonlyMap<Holder | undefined, readonly number[]>;
}

export function createRunningLeases<Holder>(): RunningLeases<Holder> {
  const running = new Map<number, { holder: Holder | undefined; key: string | undefined }>();

  return {
    add({ leases, lease: first, wishes, terms }, { granted }, holder) {
      if (leases === 0) return;
      let lease = first;
      for (const [index, { slotsUs }] of granted.entries()) {
        const { key, keyLimits } = wishes[index]!;
        if (![...terms.limits, ...keyLimits].some(isLeased)) continue;
        for (const _slot of slotsUs) running.set(lease++, { holder, key });
      }
    },
    remove(leases) {
      for (const lease of leases) running.delete(lease);
    },
    countIn(holder, key) {
      let count = 0;
      for (const each of running.values()) {
        if (each.holder === holder && (key === undefined || each.key === key)) count += 1;
      }
      return count;
    },
    byHolder(leases) {
      const found = new Map<Holder | undefined, number[]>();
      for (const lease of leases) {
        const holder = running.get(lease)?.holder;
        found.set(holder, [...(found.get(holder) ?? []), lease]);
      }
      return found;
    },
  };
}

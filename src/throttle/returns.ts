import { reasonOf } from "../core/describe.ts";
import { ruleOf } from "../core/limits/registry.ts";
import type { Limit } from "../core/limits/rule.ts";
import { MOST_RETURNED, type Place } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { Group } from "./group.ts";
import type { HeldSlot } from "./held-slots.ts";

const MOST_REFUNDS = 20;

/** Gives back what nobody here waits for any more. */
export interface Returns {
  giveBack(
    generation: number,
    group: Group,
    slots: readonly HeldSlot[],
    places: { readonly bucket: Place; readonly key: Place },
  ): void;
  /** Gives back what slots took that were not used in time; the time itself is gone. Resolves when that is done. */
  readonly refund: (group: Group, slots: readonly HeldSlot[]) => Promise<void>;
  /** Resolves when all has been given back, or is wasted. */
  settled(): Promise<void>;
}

export function createReturns(basics: Basics): Returns {
  const { store, bucket, asker, known, logger } = basics;
  const underWay = new Set<Promise<void>>();

  function send(what: Promise<void>): Promise<void> {
    const sending = what
      // What cannot be given back is wasted, one horizon at most; no caller waits for it.
      .catch((error: unknown) =>
        logger.warn({ bucket, reason: reasonOf(error) }, "Unused slots could not be given back."),
      )
      .finally(() => underWay.delete(sending));
    underWay.add(sending);
    return sending;
  }

  return {
    giveBack(generation, { name, key, conditions }, slots, places) {
      const { keyLimits, costs } = conditions;
      const slotsUs = slots.map(({ slotUs }) => slotUs).slice(0, MOST_RETURNED);
      const wish = { name, key, keyLimits, costs, place: places.key };
      const { terms } = known;
      const request = { bucket, asker, terms, generation, place: places.bucket, wish, slotsUs };
      void send(store.giveBack(request));
    },
    async refund({ key, conditions }, slots) {
      const { keyLimits, limits, shared, costs, text } = conditions;
      const isReturned = limits.map((limit, index) => index >= shared.length || isQuota(limit));
      if (!isReturned.includes(true) || text !== known.terms.text) return;
      const counts = new Map<number, number>();
      for (const { slotUs } of slots) counts.set(slotUs, (counts.get(slotUs) ?? 0) + 1);
      // A burst lies on one moment; what is spread over many is not worth a request for each.
      const largest = [...counts].sort(([, a], [, b]) => b - a).slice(0, MOST_REFUNDS);
      const sent = largest.map(([slotUs, count]) => {
        const deltas = costs.map((cost, index) => (isReturned[index] ? -count * cost : 0));
        const { terms } = known;
        const request = { bucket, terms, key, keyLimits, deltas, slotUs, isUnused: true };
        return send(store.settle(request));
      });
      await Promise.all(sent);
    },
    async settled() {
      await Promise.all(underWay);
    },
  };
}

/**
 * Whether a limit counts what was used in a time. What all keys share and drains evenly
 * cannot be given back afterwards: it may have drained since, and others are booked
 * behind it. A key's own may be: a slow one would lose an hour for a slot 10 ms late.
 */
function isQuota({ kind }: Limit): boolean {
  const { isRate, doesDrain } = ruleOf(kind);
  return isRate && doesDrain !== true;
}

import { reasonOf } from "../../core/describe.ts";
import { ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import { MOST_RETURNED, NO_PLACE, type Place } from "../../core/store.ts";
import type { BucketContext } from "../known-policy.ts";
import type { AskTimes } from "./ask-times.ts";
import type { Dispatcher } from "./dispatch.ts";
import { isNone, type LinePlaces } from "./draw-request.ts";
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

export function createReturns(context: BucketContext): Returns {
  const { store, bucket, asker, known, logger } = context;
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
    giveBack(generation, { name, limitedKey: key, callTerms }, slots, places) {
      const { keyLimits, costs } = callTerms;
      const slotsUs = slots.map(({ slotUs }) => slotUs).slice(0, MOST_RETURNED);
      const wish = { name, key, keyLimits, costs, place: places.key };
      const { terms } = known;
      const request = { bucket, asker, terms, generation, place: places.bucket, wish, slotsUs };
      void send(store.giveBack(request));
    },
    async refund({ limitedKey: key, callTerms }, slots) {
      const { keyLimits, limits, shared, costs, text } = callTerms;
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

/** What nobody here needs any more, and another replica can use: slots, and places in lines. */
export interface Leftovers {
  /** Somebody may have left this group. */
  leftBy(group: Group): void;
  /** Gives back the slots that nobody here waits for, and the places of lines that are empty. */
  giveBack(generation: number): void;
}

export interface LeftoversParts {
  readonly dispatcher: Dispatcher;
  readonly linePlaces: LinePlaces;
  readonly returns: Returns;
  readonly askTimes: AskTimes;
}

export function createLeftovers(parts: LeftoversParts): Leftovers {
  const { dispatcher, linePlaces, returns, askTimes } = parts;
  const left = new Set<Group>();

  function isWaitedFor(key: string | undefined): boolean {
    return key !== undefined && dispatcher.schedule.hasKey(key);
  }

  function giveUp(generation: number, group: Group, slots: readonly HeldSlot[]): void {
    const isLast = dispatcher.waiting === 0;
    const shared = isLast ? linePlaces.shared : NO_PLACE;
    const place = linePlaces.of(group.limitedKey);
    const own = isNone(place) || isWaitedFor(group.limitedKey) ? NO_PLACE : place;
    // Who comes next asks anew: nobody here hears of changes until then.
    dispatcher.schedule.deferUntil(group, 0);
    if (slots.length === 0 && isNone(own) && isNone(shared)) return;
    if (!isNone(own)) linePlaces.keep(group.limitedKey, NO_PLACE);
    returns.giveBack(generation, group, slots, { bucket: shared, key: own });
    if (!isLast) return;
    linePlaces.shared = NO_PLACE;
    askTimes.retryNow();
  }

  return {
    leftBy: (group) => void left.add(group),
    giveBack(generation) {
      dispatcher.takeSurplus((group, slots) => giveUp(generation, group, slots));
      for (const group of left) if (group.isIdle) giveUp(generation, group, []);
      left.clear();
    },
  };
}

import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import type { SettleBy } from "../call-options.ts";
import { differences } from "../costs.ts";
import { assertCounted, type BucketContext } from "../known-policy.ts";
import type { Slot, SlotKeeper } from "./slot.ts";

/** Settles what calls came to cost; what cannot be told or passed on stays as estimated. */
export interface Settling {
  readonly settle: SlotKeeper["settle"];
  /** Settles what a call's result tells that it cost. */
  readonly settleBy: (read: SettleBy<unknown>, result: unknown, slot: Slot) => void;
  /** Resolves when what results tell has been passed on, or after a second: a result may be an answer without end. */
  settled(): Promise<void>;
}

const READING_MS = 1_000;

export function createSettling(
  { store, bucket, known, logger }: BucketContext,
  /** A call cost less: what was refused to its key, or to all, may pass now. */
  onLess: (key: string | undefined) => void,
): Settling {
  const underWay = new Set<Promise<void>>();

  return {
    async settle({ slotUs, group }, cost) {
      const { limitedKey: key, callTerms } = group;
      const { costs, keyLimits, limits, shared, text } = callTerms;
      const deltas = differences(limits, costs, cost);
      const named = { where: "settle()", path: "", byUnit: cost, isKeyed: true };
      assertCounted(bucket, [known.policy, known.declared], named);
      // Under another policy by now, what the numbers meant is gone.
      if (text !== known.terms.text || deltas.every((delta) => delta === 0)) return;
      try {
        await store.settle({ bucket, terms: known.terms, key, keyLimits, deltas, slotUs });
        const isSharedLess = deltas.slice(0, shared.length).some((delta) => delta < 0);
        if (deltas.some((delta) => delta < 0)) onLess(isSharedLess ? undefined : key);
      } catch (error) {
        logger.warn(
          { bucket, reason: reasonOf(error) },
          "A cost could not be settled; the estimate stands.",
        );
      }
    },
    settleBy(read, result, slot) {
      const settling = (async () => {
        const cost = await read(result);
        if (cost !== undefined && cost !== null) await slot.settle(cost);
      })();
      // The call went well; that it cannot be told what it cost must not make it fail.
      const ended = settling
        .catch((error: unknown) => {
          const problem = `settle() failed; the estimate of bucket "${bucket}" stands: ${reasonOf(error)}`;
          logger.warn({ bucket, reason: reasonOf(error) }, problem);
        })
        .finally(() => underWay.delete(ended));
      underWay.add(ended);
    },
    async settled() {
      if (underWay.size === 0) return;
      const waiting = new AbortController();
      const { signal } = waiting;
      const patience = pause(READING_MS, undefined, { signal }).catch(() => undefined);
      await Promise.race([Promise.all(underWay), patience]);
      waiting.abort();
    },
  };
}

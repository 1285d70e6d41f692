import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import type { SettleBy } from "../call-options.ts";
import { differences, shadowDifferences } from "../costs.ts";
import { assertCounted, type BucketContext } from "../known-policy.ts";
import type { Slot, SlotContext, Unneeded } from "./slot.ts";

/** Books what calls truly cost, in place of what they were estimated to cost. */
export interface Settling {
  readonly settle: SlotContext["settle"];
  readonly giveBack: SlotContext["giveBack"];
  /** Settles the cost that `read` finds in a call's result. */
  readonly settleByResult: (read: SettleBy<unknown>, result: unknown, slot: Slot) => void;
  /** Resolves when all results have been read and settled, or after a second: a result may be a stream without end. */
  settled(): Promise<void>;
}

/** Called when a call cost less than estimated: calls of its key, or of all, may pass that were refused. */
interface OnLess {
  /** The difference was sent: whatever is asked from now on is answered with it in mind. */
  readonly sent: () => void;
  /** It is booked: what was asked before has been answered by now. */
  readonly booked: (key: string | undefined) => void;
}

const READING_MS = 1_000;

export function createSettling(
  { store, bucket, known, logger }: BucketContext,
  onLess: OnLess,
): Settling {
  const underWay = new Set<Promise<void>>();

  function track(sending: Promise<void>): void {
    const tracked = sending.finally(() => underWay.delete(tracked));
    underWay.add(tracked);
  }

  async function send(unneeded: Unneeded): Promise<void> {
    const { group, deltas, shadowDeltas = [], slotUs, isUnused } = unneeded;
    const { scopes, callTerms } = group;
    const { shared, text } = callTerms;
    // Another policy is in force by now: it has other limits than those that these numbers are for.
    if (text !== known.terms.text) return;
    const isInShadow = shadowDeltas.some((delta) => delta !== 0);
    if (!isInShadow && deltas.every((delta) => delta === 0)) return;
    const isLess = deltas.some((delta) => delta < 0);
    try {
      const { terms } = known;
      const ofShadows = isInShadow ? shadowDeltas : undefined;
      const request = { bucket, terms, scopes, deltas, slotUs, isUnused };
      const settling = store.settle({ ...request, shadowDeltas: ofShadows });
      if (isLess) onLess.sent();
      await settling;
      if (!isLess) return;
      const isLessOf = (after: number, count: number): boolean =>
        deltas.slice(after, after + count).some((delta) => delta < 0);
      if (isLessOf(0, shared.length)) return onLess.booked(undefined);
      let after = shared.length;
      for (const { key, limits } of scopes) {
        if (isLessOf(after, limits.length)) onLess.booked(key);
        after += limits.length;
      }
    } catch (error) {
      logger.warn(
        { bucket, reason: reasonOf(error) },
        "Could not settle a cost; the estimate stays.",
      );
    }
  }

  return {
    async settle({ slotUs, group, later }, cost, mayBook) {
      const { limits, costs, shadowCosts = [], text } = group.callTerms;
      const deltas = differences(limits, costs, cost);
      const shadows = text === known.terms.text ? (known.terms.shadows ?? []) : [];
      const shadowDeltas = shadowDifferences(shadows, shadowCosts, cost);
      const named = { where: "settle()", path: "", byUnit: cost, isKeyed: true };
      assertCounted(bucket, known, named);
      if (mayBook !== undefined && !(await mayBook())) return undefined;
      if (later === undefined) return send({ group, deltas, shadowDeltas, slotUs });
      // What the call lacked is booked with what was booked last; what it had too much is taken from there first.
      const ofLater = deltas.map((delta, index) => Math.max(delta, -later.costs[index]!));
      const rest = deltas.map((delta, index) => delta - ofLater[index]!);
      await Promise.all([
        send({ group, deltas: ofLater, slotUs: later.slotUs }),
        send({ group, deltas: rest, shadowDeltas, slotUs }),
      ]);
    },
    giveBack: (unneeded) => track(send(unneeded)),
    settleByResult(read, result, slot) {
      const settling = (async () => {
        const cost = await read(result);
        if (cost !== undefined && cost !== null) await slot.settle(cost);
      })();
      // The call went well: it must not fail because its cost could not be read.
      track(
        settling.catch((error: unknown) => {
          const problem = `settle() failed; the estimate of bucket "${bucket}" stays: ${reasonOf(error)}`;
          logger.warn({ bucket, reason: reasonOf(error) }, problem);
        }),
      );
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

import { setTimeout as pause } from "node:timers/promises";
import { reasonOf } from "../../core/describe.ts";
import type { SlotNoted } from "../../core/stores/insight/slots.ts";
import type { SettleRequest } from "../../core/store.ts";
import type { SettleBy, SettledCost } from "../call-options.ts";
import { differences, shadowDifferences } from "../costs.ts";
import { assertCounted, type BucketContext } from "../known-policy.ts";
import type { Booking, Slot, SlotContext, Unneeded } from "./slot.ts";

/** Books what calls truly cost, in place of what they were estimated to cost. */
export interface Settling {
  readonly settle: SlotContext["settle"];
  readonly settleGiven: SlotContext["settleGiven"];
  readonly noteSlot: SlotContext["noteSlot"];
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

  /** Undefined if there is nothing to book. */
  function requestOf(unneeded: Unneeded): SettleRequest | undefined {
    const { group, deltas, shadowDeltas = [], slotUs, isUnused } = unneeded;
    const { scopes, callTerms } = group;
    const { terms } = known;
    // Another policy is in force by now: it has other limits than those that these numbers are for.
    if (callTerms.text !== terms.text) return undefined;
    const isInShadow = shadowDeltas.some((delta) => delta !== 0);
    if (!isInShadow && deltas.every((delta) => delta === 0)) return undefined;
    const ofShadows = isInShadow ? shadowDeltas : undefined;
    return { bucket, terms, scopes, deltas, slotUs, isUnused, shadowDeltas: ofShadows };
  }

  /** Tells of what was taken back, as it is sent and when it is booked, which `ask` answers. */
  async function telling({ group, deltas }: Unneeded, ask: () => Promise<boolean>): Promise<void> {
    const isLess = deltas.some((delta) => delta < 0);
    const asking = ask();
    if (isLess) onLess.sent();
    if (!(await asking) || !isLess) return;
    const { scopes, callTerms } = group;
    const { shared } = callTerms;
    const isLessOf = (after: number, count: number): boolean =>
      deltas.slice(after, after + count).some((delta) => delta < 0);
    if (isLessOf(0, shared.length)) return onLess.booked(undefined);
    let after = shared.length;
    for (const { key, limits } of scopes) {
      if (isLessOf(after, limits.length)) onLess.booked(key);
      after += limits.length;
    }
  }

  async function send(unneeded: Unneeded): Promise<void> {
    const request = requestOf(unneeded);
    if (request === undefined) return;
    try {
      await telling(unneeded, async () => {
        await store.settle(request);
        return true;
      });
    } catch (error) {
      logger.warn(
        { bucket, reason: reasonOf(error) },
        "Could not settle a cost; the estimate stays.",
      );
    }
  }

  /** @throws {@link InvalidOptionError} when it can be no cost of the call. */
  function unneededOf({ slotUs, group }: Booking, cost: SettledCost): Unneeded {
    const { limits, costs, shadowCosts = [], text } = group.callTerms;
    const deltas = differences(limits, costs, cost);
    const shadows = text === known.terms.text ? (known.terms.shadows ?? []) : [];
    const shadowDeltas = shadowDifferences(shadows, shadowCosts, cost);
    assertCounted(bucket, known, { where: "settle()", path: "", byUnit: cost, isKeyed: true });
    return { group, deltas, shadowDeltas, slotUs };
  }

  return {
    async settle(booking, cost) {
      const unneeded = unneededOf(booking, cost);
      const { later } = booking;
      if (later === undefined) return send(unneeded);
      const { group, deltas, shadowDeltas, slotUs } = unneeded;
      // What the call lacked is booked with what was booked last; what it had too much is taken from there first.
      const ofLater = deltas.map((delta, index) => Math.max(delta, -later.costs[index]!));
      const rest = deltas.map((delta, index) => delta - ofLater[index]!);
      await Promise.all([
        send({ group, deltas: ofLater, slotUs: later.slotUs }),
        send({ group, deltas: rest, shadowDeltas, slotUs }),
      ]);
    },
    async settleGiven(booking, cost, slot) {
      const unneeded = unneededOf(booking, cost);
      const request = requestOf(unneeded);
      const note = { ...slot, bucket, what: "settle" } as const;
      if (request === undefined) return store.noteSlot(note);
      let noted: SlotNoted | undefined;
      await telling(unneeded, async () => {
        noted = await store.noteSlot(note, request);
        return noted.state === "held";
      });
      return noted!;
    },
    noteSlot: (note) => store.noteSlot({ ...note, bucket }),
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

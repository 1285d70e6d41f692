/**
 * How the first call of a job's handler leaves on the slot of its job (`slot/job-slot.ts`), whatever cost, key and
 * priority it names, so that both are charged once:
 *
 * - What the call needs beyond what its job drew is drawn for it, and what the job drew too much is given back.
 * - The job keeps its lease, and the call takes none. It waits before all who wait for leases: one of them may wait for
 *   the job's own.
 * - Where that is not enough, the job's slot goes back, its lease first, and the call draws as any other: when the slot
 *   is stale or has lost its lease, and when only one of the keys of job and call limits calls at once.
 */
import { textOfNamed } from "../../core/key-path.ts";
import { isLeased, ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import type { ObservedDrawCall, TryCall } from "../call-options.ts";
import { mergeCosts, type Cost } from "../costs.ts";
import { SharedSlot, type JobSlot } from "../slot/job-slot.ts";
import type { DrawnSlot, Slot, SlotContext } from "../slot/slot.ts";
import { costsUnder, isOfKey, type Group, type Groups } from "../waiting/group.ts";
import type { WaitOptions } from "../waiting/waiting-call.ts";
import type { Admission } from "./admission.ts";

interface JobSlotDrawParts {
  readonly keeper: SlotContext;
  readonly groups: Groups;
  readonly admission: Pick<Admission, "draw" | "drawBeyond">;
  /** @throws {@link InvalidOptionError} when a cost names a unit that nothing counts. */
  readonly assertUnits: (where: string, options: TryCall) => void;
  /** Called with the slot of a call for which nothing more was drawn. */
  readonly onSlot: (options: ObservedDrawCall, slot: Slot) => void;
}

/** A call that leaves on the slot of its job. */
interface JobSlotCharge {
  /** What its job has drawn, and what it needs itself. */
  readonly drawn: Group;
  readonly needed: Group;
  /** What is missing; undefined if nothing is. */
  readonly missing: Group | undefined;
}

/** Returns what draws for the first call of a handler. */
export function createJobSlotDraws({
  keeper,
  groups,
  admission,
  assertUnits,
  onSlot,
}: JobSlotDrawParts) {
  function chargeToJobSlot(
    hand: JobSlot,
    call: TryCall,
    drawnFor: TryCall,
  ): JobSlotCharge | undefined {
    const { slot } = hand;
    // A slot of another part of the bucket has nothing in common with the call.
    if (slot.keeper !== keeper || performance.now() >= hand.staleAtMs) return undefined;
    try {
      assertUnits("draw()", call);
      const needed = groups.of(call);
      const drawn = groups.of(drawnFor);
      if (needed.callTerms.hasLeases && !slot.hasLease) return undefined;
      if (hasKeyLeasesBeside(drawn, needed) || hasKeyLeasesBeside(needed, drawn)) return undefined;
      if (drawn === needed) return { drawn, needed, missing: undefined };
      const missing = groups.of({ ...call, beyond: drawnFor });
      const isAll = missing.callTerms.costs.every((cost) => cost === 0);
      return { drawn, needed, missing: isAll ? undefined : missing };
    } catch {
      // The draw throws it, unless another policy is in force.
      return undefined;
    }
  }

  /** Leaves on the slot, with what was drawn beyond it. */
  function leave(
    hand: JobSlot,
    charge: JobSlotCharge,
    key: string | undefined,
    beyond?: DrawnSlot,
  ): Slot {
    const { slot } = hand;
    const { drawn, needed, missing } = charge;
    if (needed !== drawn) {
      // Under another policy by now, it is not known what of the job's cost is booked.
      const isSamePolicy = slot.booking.group.callTerms.text === drawn.callTerms.text;
      const deltas = surplusOf(charge);
      if (isSamePolicy) keeper.giveBack({ group: drawn, slotUs: slot.slotUs, deltas });
      const later = beyond && { slotUs: beyond.slotUs, costs: missing!.callTerms.costs };
      slot.booking = { group: needed, slotUs: slot.slotUs, later };
    }
    if (beyond === undefined && key === textOfNamed(slot)) return slot;
    return (hand.replacedBy = new SharedSlot(slot, key, beyond ?? slot));
  }

  return function drawOnJobSlot(options: ObservedDrawCall, hand: JobSlot): Promise<Slot> {
    options.signal?.throwIfAborted();
    const { slot } = hand;
    const drawnFor = { ...hand.drawnFor, cost: costDrawn(hand) };
    const key = options.key ?? drawnFor.key;
    const cost = mergeCosts(drawnFor.cost, options.cost);
    const priority = options.priority ?? hand.drawnFor.priority;
    const call: WaitOptions = { ...options, key, cost, priority };
    const charge = chargeToJobSlot(hand, call, drawnFor);
    hand.isUsed = true;
    if (charge === undefined) {
      giveUp(slot);
      return admission.draw(call).then((own) => {
        slot.replacement = own;
        return (hand.replacedBy = own);
      });
    }
    if (charge.missing === undefined) {
      const left = leave(hand, charge, key);
      onSlot(call, left);
      return Promise.resolve(left);
    }
    // Whoever holds a lease must not wait behind those who wait for it.
    const rank = slot.hasLease ? ("critical" as const) : priority;
    return admission.drawBeyond({ ...call, priority: rank, beyond: drawnFor }).then(
      (beyond) => leave(hand, charge, key, beyond),
      (error: unknown) => {
        // The slot is unused, so the next call may leave on it.
        hand.isUsed = false;
        throw error;
      },
    );
  };
}

/** What a job has drawn; what its handler has settled holds in place of that. */
function costDrawn({ slot: { settled }, drawnFor: { cost } }: JobSlot): Cost | undefined {
  if (settled === undefined) return cost;
  const known = Object.entries(settled).filter(([, amount]) => typeof amount === "number");
  return mergeCosts(cost, Object.fromEntries(known) as Record<string, number>);
}

/** Whether a group has leases of keys that the other does not have. */
function hasKeyLeasesBeside({ scopes }: Group, other: Group): boolean {
  return scopes.some(({ key, limits }) => !isOfKey(other, key) && limits.some(isLeased));
}

/** What was drawn that the call does not need; of the limits of another key, it needs nothing. */
function surplusOf({ drawn, needed }: JobSlotCharge): number[] {
  const { limits, costs } = drawn.callTerms;
  const under = costsUnder(drawn.scopes, needed);
  return limits.map((limit, index) =>
    isLeased(limit) ? 0 : Math.min(0, under[index]! - costs[index]!),
  );
}

/** Gives back the slot of a job on which no call leaves. A lease that it kept could be the one that the call waits for. */
function giveUp(slot: DrawnSlot): void {
  slot.release();
  const { group, slotUs } = slot.booking;
  const { limits, costs } = group.callTerms;
  const settled = slot.settled ?? {};
  const back = limits.map((limit, index) =>
    isLeased(limit) ? 0 : -(settled[limit.unit] ?? costs[index]!),
  );
  const deltasOf = (isIncluded: (limit: Limit) => boolean): number[] =>
    back.map((delta, index) => (isIncluded(limits[index]!) ? delta : 0));
  // The time of the slot has passed, and others may be booked behind it; what else it took, nothing has used.
  const isOfTime = ({ kind, unit }: Limit): boolean =>
    unit === "calls" && ruleOf(kind).doesDrain === true;
  slot.keeper.giveBack({ group, slotUs, deltas: deltasOf(isOfTime), isUnused: true });
  slot.keeper.giveBack({ group, slotUs, deltas: deltasOf((limit) => !isOfTime(limit)) });
}

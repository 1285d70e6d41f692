/**
 * The first call of a job's handler uses the job's slot (`slot/job-slot.ts`), whatever the call's cost, key and
 * priority. So job and call are charged once:
 *
 * - The call draws only the costs beyond those of the job. If the job drew more than the call needs, the surplus is
 *   returned.
 * - The call uses the job's lease. It goes ahead of all calls that wait for leases, because they may wait for this
 *   lease.
 * - The call cannot use the slot if the slot is stale or lost its lease. Nor can it if only one of the two keys, the
 *   job's or the call's, has a concurrency limit. The job then returns its lease and its slot, and the call draws like
 *   any other.
 */
import { amountIn } from "../../core/limits/budget.ts";
import { isLeased, ruleOf } from "../../core/limits/registry.ts";
import type { Limit } from "../../core/limits/rule.ts";
import type { ObservedDrawCall, TryCall } from "../call-options.ts";
import { mergeCosts, type Cost } from "../costs.ts";
import { SharedSlot, type JobSlot } from "../slot/job-slot.ts";
import type { DrawnSlot, KeyedSlot, Slot, SlotContext } from "../slot/slot.ts";
import { costsUnder, isOfKey, type Group, type Groups } from "../waiting/group.ts";
import type { WaitOptions } from "../waiting/waiting-call.ts";
import type { Admission } from "./admission.ts";

interface JobSlotDrawParts {
  readonly keeper: SlotContext;
  readonly groups: Groups;
  readonly admission: Pick<Admission, "draw" | "drawBeyond">;
  /** @throws {@link InvalidOptionError} when a cost names a unit that no limit counts. */
  readonly assertUnits: (where: string, options: TryCall) => void;
  /** Called with the slot of a call that needed no additional draw. */
  readonly onSlot: (options: ObservedDrawCall, slot: Slot) => void;
}

/** The costs of a call that uses the slot of its job. */
interface JobSlotCharge {
  /** The group of the job's own draw. */
  readonly drawn: Group;
  /** The group of the call. */
  readonly needed: Group;
  /** The group of the costs beyond those of the job. Undefined if there are no such costs. */
  readonly missing: Group | undefined;
}

/** Returns a function that draws a slot for the first call of a job's handler. */
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
    // The call cannot use a slot from another part of the bucket, because parts share no limits. In a pool, the call may
    // be for another member.
    const isOther = slot.keeper !== keeper || slot.member !== undefined;
    if (isOther || performance.now() >= hand.staleAtMs) return undefined;
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
      // The draw throws this error again, unless it runs under a newer policy.
      return undefined;
    }
  }

  /** Starts the call in the job's slot, and books the additional draw, if there was one. */
  function startInSlot(
    hand: JobSlot,
    charge: JobSlotCharge,
    key: string | undefined,
    beyond?: DrawnSlot,
  ): KeyedSlot {
    const { slot } = hand;
    const { drawn, needed, missing } = charge;
    if (needed !== drawn) {
      // After a policy change, it is unknown how much of the job's cost is still booked.
      const isSamePolicy = slot.booking.group.callTerms.text === drawn.callTerms.text;
      const deltas = surplusOf(charge);
      if (isSamePolicy) keeper.giveBack({ group: drawn, slotUs: slot.slotUs, deltas });
      const later = beyond && { slotUs: beyond.slotUs, costs: missing!.callTerms.costs };
      slot.booking = { group: needed, slotUs: slot.slotUs, later };
    }
    if (beyond === undefined && key === slot.encodedKey) return slot;
    return (hand.replacedBy = new SharedSlot(slot, key, beyond ?? slot));
  }

  return function drawOnJobSlot(options: ObservedDrawCall, hand: JobSlot): Promise<KeyedSlot> {
    options.signal?.throwIfAborted();
    const { slot } = hand;
    const drawnFor = { ...hand.drawnFor, cost: costDrawn(hand) };
    const key = options.key ?? drawnFor.key;
    const cost = mergeCosts(drawnFor.cost, options.cost);
    const priority = options.priority ?? hand.drawnFor.priority;
    // The job has paid its cost, so its call reserves nothing.
    const call: WaitOptions = { ...options, key, cost, priority, settles: undefined };
    const charge = chargeToJobSlot(hand, call, drawnFor);
    hand.isUsed = true;
    if (charge === undefined) {
      giveUp(slot);
      return admission.draw({ ...call, settles: options.settles }).then((own) => {
        slot.replacement = own;
        return (hand.replacedBy = own);
      });
    }
    if (charge.missing === undefined) {
      const own = startInSlot(hand, charge, key);
      onSlot(call, own);
      return Promise.resolve(own);
    }
    // With a lease, the call draws at the highest priority. Otherwise it could wait behind calls that wait for this
    // lease.
    const rank = slot.hasLease ? ("critical" as const) : priority;
    return admission.drawBeyond({ ...call, priority: rank, beyond: drawnFor }).then(
      (beyond) => startInSlot(hand, charge, key, beyond),
      (error: unknown) => {
        // The call did not start, so the next call may use the job's slot.
        hand.isUsed = false;
        throw error;
      },
    );
  };
}

/** Returns the cost that a job drew. Units that the handler has settled count with their settled amounts. */
function costDrawn({ slot: { settled }, drawnFor: { cost } }: JobSlot): Cost | undefined {
  if (settled === undefined) return cost;
  const known = Object.entries(settled).filter(([, amount]) => typeof amount === "number");
  return mergeCosts(cost, Object.fromEntries(known) as Record<string, number>);
}

/** True if a group needs leases for keys that the other group does not have. */
function hasKeyLeasesBeside({ scopes }: Group, other: Group): boolean {
  return scopes.some(({ key, limits }) => !isOfKey(other, key) && limits.some(isLeased));
}

/** Returns the surplus of the job's drawn costs for each limit, as negative numbers. */
function surplusOf({ drawn, needed }: JobSlotCharge): number[] {
  const { limits, costs } = drawn.callTerms;
  const under = costsUnder(drawn.scopes, needed);
  return limits.map((limit, index) =>
    isLeased(limit) ? 0 : Math.min(0, under[index]! - costs[index]!),
  );
}

function settledUnder(limit: Limit, settled: number | undefined, drawn: number): number {
  return settled === undefined ? drawn : amountIn(limit, settled);
}

/** Gives back a job's slot that the call cannot use. The lease goes back first, because the call may wait for it. */
function giveUp(slot: DrawnSlot): void {
  slot.release({ outcome: "ignored" });
  const { group, slotUs } = slot.booking;
  const { limits, costs } = group.callTerms;
  const settled = slot.settled ?? {};
  const back = limits.map((limit, index) =>
    isLeased(limit) ? 0 : -settledUnder(limit, settled[limit.unit] ?? undefined, costs[index]!),
  );
  const deltasOf = (isIncluded: (limit: Limit) => boolean): number[] =>
    back.map((delta, index) => (isIncluded(limits[index]!) ? delta : 0));
  // A limit that drains may have later bookings behind this slot, so its part is returned with `isUnused`. Other limits
  // get their part back in full.
  const isOfTime = ({ kind, unit }: Limit): boolean =>
    unit === "calls" && ruleOf(kind).doesDrain === true;
  slot.keeper.giveBack({ group, slotUs, deltas: deltasOf(isOfTime), isUnused: true });
  slot.keeper.giveBack({ group, slotUs, deltas: deltasOf((limit) => !isOfTime(limit)) });
}

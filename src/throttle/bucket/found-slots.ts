/** How a slot is settled, and its lease ended or renewed, in another process than the one that drew it. */
import { callTermsOf } from "../costs.ts";
import { isByPolicy, type BucketContext, type RefreshPolicy } from "../known-policy.ts";
import { createLeaseKeeper, type LeaseHolder, type LeaseKeeper } from "../slot/leases.ts";
import { DrawnSlot, policyDigest, type SlotContext, type SlotFacts } from "../slot/slot.ts";
import type { Groups } from "../waiting/group.ts";

interface FoundSlotsParts {
  readonly context: BucketContext;
  readonly keeper: SlotContext;
  readonly groups: Pick<Groups, "of">;
  readonly refreshPolicy: RefreshPolicy;
}

/** What is left of a call that the policy in force would never let pass. */
const NOTHING: LeaseHolder = {
  scopes: [],
  callTerms: callTermsOf({ shared: [], scopeLimits: [], costs: [], whose: [], text: "" }),
};

export function createFoundSlots({ context, keeper, groups, refreshPolicy }: FoundSlotsParts) {
  const { known } = context;
  /** Of other processes whose leases are renewed or ended here. */
  const leasesOf = new Map<string, LeaseKeeper>();

  function keeperOf({ asker, lease }: SlotFacts): SlotContext {
    if (lease === 0 || asker === context.asker) return keeper;
    const leases = leasesOf.get(asker) ?? createLeaseKeeper({ ...context, asker });
    leasesOf.set(asker, leases);
    return { ...keeper, leases };
  }

  function holderOf({ key, cost, policy }: SlotFacts): LeaseHolder {
    try {
      const { scopes, callTerms } = groups.of({ key, cost });
      if (policyDigest(known.terms) === policy) return { scopes, callTerms };
      // What it cost was booked under limits that are gone; its lease may be one of those that are in force.
      return { scopes, callTerms: { ...callTerms, text: "" } };
    } catch (error) {
      if (isByPolicy(error)) return NOTHING;
      throw error;
    }
  }

  return {
    async slotOf(facts: SlotFacts): Promise<DrawnSlot> {
      const { slotUs, generation, key, lease } = facts;
      if (policyDigest(known.terms) !== facts.policy) await refreshPolicy();
      const group = { ...holderOf(facts), keeper: keeperOf(facts) };
      const nowMs = performance.now();
      return new DrawnSlot(
        { group, key, sinceMs: nowMs },
        { slotUs, lease },
        { generation, nowMs },
      );
    },
    /** Resolves when the leases that were ended here have been sent; those that were renewed here end by themselves. */
    async close(): Promise<void> {
      const keepers = [...leasesOf.values()];
      await Promise.all(keepers.map(async (leases) => leases.settled()));
      for (const leases of keepers) leases.close();
    },
  };
}

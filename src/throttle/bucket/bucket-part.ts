import type { CountSlots } from "../../core/events/observer.ts";
import type { Logger } from "../../core/logger.ts";
import { isMemberKey, memberKey, memberOfText } from "../../core/key-path.ts";
import { ownScopeOf } from "../../core/policy/per-key.ts";
import type { CrossedBudget, Settled, Store, WakeReason } from "../../core/store.ts";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import type { OwnedBucket } from "../bucket.ts";
import type { FeedbackOptions, TryCall } from "../call-options.ts";
import { callTermsOf, estimateOf, stepsOf, type Estimate } from "../costs.ts";
import { createFeedbackReader } from "../feedback/feedback.ts";
import {
  assertCostUnits,
  createKnownPolicy,
  createPolicyRefresh,
  isByPolicy,
  type BucketContext,
  type FindPolicy,
  type FirstPolicy,
  type RefreshPolicy,
} from "../known-policy.ts";
import {
  applyOnStoreDown,
  type OnStateLost,
  type OnStoreDown,
  type OpenLocalStore,
} from "../outage/on-store-down.ts";
import { createStoreRetries } from "../outage/retries.ts";
import { createLeaseKeeper, type LeaseHolder, type LeaseKeeper } from "../slot/leases.ts";
import {
  createSettling,
  DrawnSlot,
  policyDigest,
  type KeyedSlot,
  type SlotContext,
  type SlotFacts,
} from "../slot/slot.ts";
import { createTryDraws, type Refusals } from "../try/try-draw.ts";
import type { Waits } from "../waiting/dispatch.ts";
import { createGroups, type Caller, type Groups } from "../waiting/group.ts";
import type { UsesMember } from "../waiting/draw-request.ts";
import { whyNoMember } from "../../core/policy/pool.ts";
import { createPacer, type Pacer } from "../waiting/pacer.ts";
import type { WaitingCall } from "../waiting/waiting-call.ts";
import { createAdmission, type Admission } from "./admission.ts";
import type { BucketEmitter } from "./bucket-events.ts";
import type { Tally } from "./facts/tally.ts";
import { createBudgetControl, type BudgetControl } from "./budgets.ts";
import { createLiveControl, type LiveControl } from "./live-control.ts";
import { createJobSlotDraws } from "./job-slot-draws.ts";

/** The settings of a bucket. `store` is the store of one part. */
export interface PartSettings extends FirstPolicy {
  readonly name: string;
  /** Looks up the policy. Set only if neither the code of this process nor the rules declare one. */
  readonly findPolicy?: FindPolicy | undefined;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
  readonly insight: InsightStore;
  readonly maxWaiting?: number | undefined;
  readonly feedback?: FeedbackOptions | undefined;
  readonly onStoreDown?: OnStoreDown | undefined;
  readonly onStateLost?: OnStateLost | undefined;
  /** Opens the in-memory store that `onStoreDown` uses. Omitted if the bucket's own store is in memory. */
  readonly openLocalStore?: OpenLocalStore | undefined;
  /** True if calls of this process may use a member of a pool. Defaults to all members. */
  readonly usesMember?: UsesMember | undefined;
  /** Called at the first draw, to subscribe to the store's messages. Buckets without draws need no messages. */
  readonly listen?: (() => void) | undefined;
}

/** State and callbacks that all parts of one bucket share in this process. */
export interface SharedByParts {
  /** Returns the number of callers that wait in all parts. */
  readonly waiting: () => number;
  readonly refusals: Refusals;
  readonly events: BucketEmitter;
  readonly tally: Tally;
  /** Called after each live change of one key or of all keys, so that waiting calls follow the change at once. */
  readonly onLiveChange: (key: string | undefined) => void;
  /** Returns how to take a grant back, from the part that has the grant's key. */
  readonly inverseOfGrant: BudgetControl["inverseOfGrant"];
}

/**
 * One part of a bucket: the keys that share one clock. A bucket has one part with all its keys, or 32 parts in a
 * cluster.
 */
export interface BucketPart
  extends
    Pick<Admission, "draw" | "tryDraw" | "drawForJob" | "check" | "refusalKnown" | "whenHopeless">,
    Pick<OwnedBucket, "stepsOf" | "report" | "coolDown" | "slotOf" | "settleByResult">,
    Pick<Store, "readOutages" | "noteOutage"> {
  readonly waiting: number;
  readonly waits: () => Waits;
  readonly deferred: number;
  readonly drawOnJobSlot: ReturnType<typeof createJobSlotDraws>;
  readonly live: LiveControl;
  readonly budgets: BudgetControl;
  /** True if the active policy has per-key limits for this key. */
  readonly hasOwnLimits: (key: string) => boolean;
  readonly outcomesReported: () => Promise<void>;
  /** Draws again for the waiting callers of one key or of all keys, after a change or when a lease becomes free. */
  redraw(key?: string, reason?: WakeReason): void;
  /** Drops the unused slots of one key or of all keys, because a change has made them invalid. */
  readonly forget: (key: string | undefined) => void;
  close(): Promise<void>;
}

export function createPart(settings: PartSettings, shared: SharedByParts): BucketPart {
  const { name, replica, logger, insight, maxWaiting = Infinity } = settings;
  const { onStoreDown = "refuse", onStateLost = "empty" } = settings;
  const { waiting, refusals, events, tally } = shared;
  const count: CountSlots = tally.count;
  const waitsForStore = onStoreDown === "wait";
  const startsFull = onStateLost === "full";

  const known = createKnownPolicy(name, settings, logger);
  let isClosedPool = false;
  const reached = (crossed: readonly CrossedBudget[]): void => {
    tally.budgetReached(crossed);
    events.reached(crossed);
  };
  const store = reportingBudgets(
    applyOnStoreDown({
      ...settings,
      bucket: name,
      asker: replica,
      onStoreDown,
      wake: onStandInWake,
    }),
    reached,
  );
  const context: BucketContext = { store, bucket: name, asker: replica, known, logger, count };
  const retries = createStoreRetries(name);
  const leases = createLeaseKeeper(context, (closed) => events.adapted(closed));
  const settling = createSettling(context, {
    sent: () => pacer.earliestStarts.forget(),
    booked: (key) => tries.forget(key),
  });
  const keeper = { name, leases, ...settling };
  const groups = createGroups(keeper, () => known.policy, settings.usesMember);
  const pacer: Pacer = createPacer({
    ...context,
    leases,
    regroup,
    waitsForStore,
    startsFull,
    usesMember: settings.usesMember,
    settlementsAnswered: () => settling.answered(),
    onChange: (key) => admission.onChange(key),
  });
  const tries = createTryDraws({
    ...context,
    leases,
    groupOf: (options) => groups.ofTry(options),
    learn: pacer.learn,
    startsFull,
    usesMember: settings.usesMember,
    refusals,
    onAllowed(calls, members) {
      tally.add(calls);
      for (const member of members) tally.memberUsed(member, 1);
    },
    untilRetry: waitsForStore ? retries.untilRetry : undefined,
  });
  const assertUnits = (where: string, options: TryCall): void =>
    assertCostUnits(name, known, where, options);
  const refreshPolicy = createPolicyRefresh(context, pacer.learn, settings.findPolicy);
  const admission = createAdmission({
    name,
    refreshPolicy,
    assertUnits,
    maxWaiting,
    waiting,
    groups,
    pacer,
    tries,
    known,
    tally,
    onSlot(options, slot, group) {
      // A draw with `beyond` belongs to a call that uses its job's slot, which was already counted.
      if (options.beyond === undefined) tally.waited(slot.waitedMs, options.priority);
      const { member } = slot as KeyedSlot;
      if (member !== undefined) tally.memberUsed(member, 1);
      events.slotCame(options, slot, group);
    },
    listen: settings.listen,
  });
  const budgets: BudgetControl = createBudgetControl({
    ...context,
    insight,
    refreshPolicy,
    isClosed: () => live.isClosed(),
    onChange: shared.onLiveChange,
  });
  const live = createLiveControl({
    ...context,
    insight,
    waiting,
    refreshPolicy,
    isDeclared: settings.findPolicy === undefined,
    inverseOfGrant: shared.inverseOfGrant,
    onChange: shared.onLiveChange,
  });
  const feedback = createFeedbackReader(
    {
      ...context,
      onChange(key, change, cause) {
        redraw(key);
        if (change.do === "cool" || change.do === "cut") {
          tally.cooled();
          const member = memberOfText(key);
          if (member !== undefined) tally.memberStopped(member, cause);
        }
        events.answered(key, change);
      },
    },
    settings.feedback ?? {},
  );
  const foundSlots = createFoundSlots({ context, keeper, groups, refreshPolicy });
  const onSlot = events.slotCame;
  const drawOnJobSlot = createJobSlotDraws({ keeper, groups, admission, assertUnits, onSlot });

  /** Moves waiting callers to new groups and costs after a policy change. */
  function regroup(callers: readonly Caller[]): void {
    groups.clear();
    tries.forget();
    warnIfClosed();
    for (const caller of callers as readonly WaitingCall[]) {
      try {
        caller.group = groups.of(caller.options);
        pacer.wait(caller);
      } catch (error) {
        caller.fail(error);
      }
    }
  }

  /** Logs once that no member of a pool takes calls, because its calls then wait until an operator ends this. */
  function warnIfClosed(): void {
    const { pool } = known.policy;
    const { usesMember = () => true } = settings;
    const reason = pool && whyNoMember(pool, { costs: [] }, usesMember);
    if (reason !== undefined && !isClosedPool) {
      const message = `Pool "${name}" has no member that takes calls (${reason}), so they wait. Undrain or add a member.`;
      logger.warn({ bucket: name, reason }, message);
    }
    isClosedPool = reason !== undefined;
  }

  function onStandInWake(_bucket: string, reason: WakeReason, key: string | undefined): void {
    if (reason === "change") pacer.forget(key);
    redraw(key, reason);
  }

  function redraw(key?: string, reason?: WakeReason): void {
    retries.retryNow();
    // Calls of a pool wait for all members, so a change of one member concerns all of them.
    tries.forget(key !== undefined && isMemberKey(key) ? undefined : key);
    pacer.redraw(key, reason);
  }

  return {
    get waiting() {
      return pacer.waiting;
    },
    waits: () => pacer.waits(),
    get deferred() {
      return pacer.deferred;
    },
    draw: admission.draw,
    tryDraw: admission.tryDraw,
    drawForJob: admission.drawForJob,
    check: admission.check,
    refusalKnown: admission.refusalKnown,
    whenHopeless: admission.whenHopeless,
    drawOnJobSlot,
    live,
    budgets,
    hasOwnLimits: (key) => ownScopeOf(known.policy, key) !== undefined,
    stepsOf(options) {
      // Under a policy with only per-key limits, a call without a key has no limits.
      const isUnlimited = options.key === undefined && known.policy.limits.length === 0;
      return isUnlimited ? { sharedMs: 0, keyMs: 0 } : stepsOf(groups.of(options).callTerms);
    },
    report(resultOrError, { slot, cost, read, isSpared }) {
      const { atMs } = slot;
      const key = answeredKey(slot);
      const estimate = (): Estimate => estimateOf(groups.of({ key, cost }).callTerms);
      return feedback.readOutcome(resultOrError, { key, atMs, estimate, isSpared }, read);
    },
    coolDown: (key, coolMs, cause) => feedback.coolDown(key, coolMs, cause),
    outcomesReported: () => feedback.settled(),
    slotOf: (facts) => foundSlots.slotOf(facts),
    settleByResult: settling.settleByResult,
    readOutages: (request) => store.readOutages(request),
    noteOutage: (note) => store.noteOutage(note),
    redraw,
    forget: pacer.forget,
    async close() {
      admission.close();
      retries.close();
      live.close();
      await pacer.close();
      await Promise.all([
        leases.settled(),
        foundSlots.close(),
        feedback.settled(),
        settling.settled(),
      ]);
      leases.close();
    },
  };
}

/** Returns the key that the response to a call is about: in a pool, the member that the call used. */
export function answeredKey({ member, encodedKey }: KeyedSlot): string | undefined {
  return member === undefined ? encodedKey : memberKey(member);
}

/** Calls `reached` with the parts of budgets that draws and settlements have reached. */
function reportingBudgets(
  store: Store,
  reached: (crossed: readonly CrossedBudget[]) => void,
): Store {
  const report = <Reply extends Settled | undefined>(reply: Reply): Reply => {
    if (reply?.crossed !== undefined) reached(reply.crossed);
    return reply;
  };
  return {
    ...store,
    draw: (request) => store.draw(request).then(report),
    settle: (request) => store.settle(request).then(report),
    noteSlot: (note, settling) => store.noteSlot(note, settling).then(report),
  };
}

/** Stands for the lease holder of a call that the active policy does not allow. */
const NO_HOLDER: LeaseHolder = {
  scopes: [],
  callTerms: callTermsOf({ shared: [], scopeLimits: [], costs: [], whose: [], text: "" }),
};

/** Settles slots that another process drew, and renews or ends their leases. */
function createFoundSlots({
  context,
  keeper,
  groups,
  refreshPolicy,
}: {
  readonly context: BucketContext;
  readonly keeper: SlotContext;
  readonly groups: Pick<Groups, "of">;
  readonly refreshPolicy: RefreshPolicy;
}) {
  const { known } = context;
  /** The lease keepers for leases of other processes, by process name. */
  const leasesOf = new Map<string, LeaseKeeper>();

  function keeperOf({ asker, lease, reserves = false }: SlotFacts): SlotContext {
    if ((lease === 0 && !reserves) || asker === context.asker) return keeper;
    const leases = leasesOf.get(asker) ?? createLeaseKeeper({ ...context, asker });
    leasesOf.set(asker, leases);
    return { ...keeper, leases };
  }

  function holderOf({ key, cost, policy, reserves, member }: SlotFacts): LeaseHolder {
    try {
      const group = groups.of({ key, cost, settles: reserves, member });
      const number = group.pool === undefined ? 0 : Math.abs(group.pool.home);
      const { scopes, callTerms } = group.of({ member: number });
      if (policyDigest(known.terms) === policy) return { scopes, callTerms };
      // The limits that the cost was booked under are gone, but the lease may belong to an active limit.
      return { scopes, callTerms: { ...callTerms, text: "" } };
    } catch (error) {
      if (isByPolicy(error)) return NO_HOLDER;
      throw error;
    }
  }

  return {
    async slotOf(facts: SlotFacts): Promise<DrawnSlot> {
      const { slotUs, generation, key, lease } = facts;
      if (policyDigest(known.terms) !== facts.policy) await refreshPolicy();
      const { member: name } = facts;
      const member = name === undefined ? undefined : { name };
      const group = { ...holderOf(facts), keeper: keeperOf(facts), member };
      const nowMs = performance.now();
      return new DrawnSlot(
        { group, key, sinceMs: nowMs },
        { slotUs, lease },
        { generation, nowMs, hasStarted: true },
      );
    },
    /**
     * Resolves when all released leases have been sent to the store. Leases that this process only renewed expire by
     * themselves.
     */
    async close(): Promise<void> {
      const keepers = [...leasesOf.values()];
      await Promise.all(keepers.map(async (leases) => leases.settled()));
      for (const leases of keepers) leases.close();
    },
  };
}

import { setMaxListeners } from "node:events";
import { namedOf, textOfKey, textOfNamed } from "../../core/key-path.ts";
import type { Logger } from "../../core/logger.ts";
import type { Observing } from "../../core/events/observer.ts";
import { ownScopeOf } from "../../core/policy/per-key.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import type { News, Store } from "../../core/store.ts";
import type { InsightStore } from "../../core/stores/insight/store.ts";
import type { OwnedBucket, ReportedCall } from "../bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type AnyFunction,
  type DrawCall,
  type FeedbackOptions,
  type ObservedDrawCall,
  type ThrottledFetch,
  type TryCall,
  type ThrottledOptions,
} from "../call-options.ts";
import type { Throttle } from "../wrap/throttled-types.ts";
import { estimateOf, stepsOf, type Estimate } from "../costs.ts";
import { createFeedbackReader, type ReportedOutcome } from "../feedback/feedback.ts";
import {
  assertCostUnits,
  createKnownPolicy,
  createPolicyRefresh,
  type BucketContext,
  type FindPolicy,
  type FirstPolicy,
} from "../known-policy.ts";
import {
  applyOnStoreDown,
  type OnStateLost,
  type OnStoreDown,
  type OpenLocalStore,
} from "../outage/on-store-down.ts";
import type { AwayNews } from "../outage/away-news.ts";
import { createBreaker, type Breaker, type BreakerSettings } from "../outage/breaker.ts";
import { createStoreRetries } from "../outage/retries.ts";
import { createLeaseKeeper } from "../slot/leases.ts";
import { createSettling, type Slot } from "../slot/slot.ts";
import { jobSlotInHand } from "../slot/job-slot.ts";
import { createRefusals, type Refusals, createTryDraws } from "../try/try-draw.ts";
import type { TryDecision } from "../try/decision.ts";
import { createGroups, type Caller } from "../waiting/group.ts";
import { createPacer, type Pacer } from "../waiting/pacer.ts";
import type { WaitingCall } from "../waiting/waiting-call.ts";
import type { CallDefaults } from "../wrap/call-defaults.ts";
import { createFetch } from "../wrap/fetch.ts";
import { waitInside, runOnce, throttle } from "../wrap/throttled.ts";
import { createAdmission } from "./admission.ts";
import { createBucketTeller, createCloseListeners, type BucketTeller } from "./bucket-events.ts";
import { createFoundSlots } from "./found-slots.ts";
import { createLiveControl } from "./live-control.ts";
import { createRides } from "./ride.ts";
import { readPreview, suppose } from "./facts/preview.ts";
import { readHistory, readStatus } from "./facts/status.ts";
import { createTally, toldOf, type Tally } from "./facts/tally.ts";

const NO_OPTIONS: DrawCall = Object.freeze({});

/** What a bucket is made of. */
export interface BucketSettings extends FirstPolicy {
  readonly name: string;
  /** Set where no code here says the policy: looks it up, unless rules say it. */
  readonly findPolicy?: FindPolicy | undefined;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
  readonly insight: InsightStore;
  /** Called with the first call or caller after each look at {@link OwnedBucket.told}. */
  readonly onActivity?: (() => void) | undefined;
  readonly observing?: Observing | undefined;
  readonly maxWaiting?: number | undefined;
  readonly feedback?: FeedbackOptions | undefined;
  readonly calls?: CallDefaults | undefined;
  readonly breaker?: BreakerSettings | false | undefined;
  readonly onStoreDown?: OnStoreDown | undefined;
  readonly onStateLost?: OnStateLost | undefined;
  /** The store in memory for `onStoreDown`; left out where the store itself lies there. */
  readonly openLocalStore?: OpenLocalStore | undefined;
  /** Called at the first draw: from then on the bucket needs the news of free leases and changes. */
  readonly listen?: (() => void) | undefined;
  /** Set if this is one part of a bucket in a cluster. */
  readonly common?: CommonToParts | undefined;
}

/** What the parts of one bucket in a cluster share, in this process. */
interface CommonToParts {
  /** How many callers wait in all of them. */
  readonly waiting: () => number;
  readonly refusals: Refusals;
  readonly teller: BucketTeller;
  readonly tally: Tally;
  readonly breaker: Breaker;
  /** Whether this part tells of changes of the whole bucket, which come to every part. */
  readonly tellsOfAll: boolean;
}

/** Puts a bucket together: its draws, tries, live changes and feedback, over one store. */
export function createBucket(settings: BucketSettings): OwnedBucket {
  const { name, policy, replica, logger, insight, maxWaiting = Infinity } = settings;
  const { onStoreDown = "refuse", onStateLost = "empty" } = settings;
  const { waiting, refusals, teller, tally, tellsOfAll } = settings.common ?? {
    waiting: () => pacer.waiting,
    refusals: createRefusals(),
    teller: createBucketTeller(name, logger),
    tally: createTally(settings),
    tellsOfAll: true,
  };
  const waitsForStore = onStoreDown === "wait";
  const startsFull = onStateLost === "full";

  const known = createKnownPolicy(name, settings, logger);
  const store = applyOnStoreDown({
    ...settings,
    bucket: name,
    asker: replica,
    onStoreDown,
    wake: onStandInNews,
  });
  const { count } = tally;
  const context: BucketContext = { store, bucket: name, asker: replica, known, logger, count };
  const retries = createStoreRetries(name);
  const leases = createLeaseKeeper(context);
  const settling = createSettling(context, {
    sent: () => pacer.knownTimes.forget(),
    booked: (key) => tries.forget(key),
  });
  const keeper = { name, leases, ...settling };
  const groups = createGroups(keeper, () => known.policy);
  const pacer: Pacer = createPacer({
    ...context,
    leases,
    regroup,
    waitsForStore,
    startsFull,
    onNews: (key) => admission.onNews(key),
  });
  const tries = createTryDraws({
    ...context,
    leases,
    groupOf: (options) => groups.ofTry(options),
    learn: pacer.learn,
    startsFull,
    refusals,
    onAllowed: tally.add,
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
      // What a call needs beyond its job's slot is no call of its own.
      if (options.beyond === undefined) tally.waited(slot.waitedMs, options.priority);
      teller.slotCame(options, slot, group);
    },
    listen: settings.listen,
  });
  const isDeclared = settings.findPolicy === undefined;
  const steering = { insight, waiting, refreshPolicy, isDeclared, onChange: askAgain };
  const liveControl = createLiveControl({ ...context, ...steering });
  const feedback = createFeedbackReader(
    {
      ...context,
      onChange(key, change) {
        askAgain(key);
        if (change.do === "cool" || change.do === "cut") tally.cooled();
        teller.answered(key, change);
      },
    },
    settings.feedback ?? {},
  );
  const breaker =
    settings.common?.breaker ??
    createBreaker({
      bucket: name,
      settings: settings.breaker,
      logger,
      hasOwnLimits: (key) => ownScopeOf(known.policy, key) !== undefined,
      coolDown: (key, coolMs) => feedback.coolDown(key, coolMs),
      onAway: noteAway,
    });
  const foundSlots = createFoundSlots({ context, keeper, groups, refreshPolicy });
  const drawOnJobSlot = createRides({
    keeper,
    groups,
    admission,
    assertUnits,
    onSlot: teller.slotCame,
  });
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeListeners = createCloseListeners(name);
  let isCalledByHand = false;
  let fetched: ThrottledFetch | undefined;

  function noteAway(key: string | undefined, news: AwayNews): void {
    const { isBack, isHeard, forMs } = news;
    teller.away(key, news);
    if (isHeard) return;
    // Unheard, others find out by themselves, and so does this process.
    const coolMs = isBack ? undefined : Math.max(1, forMs);
    store.noteAway({ bucket: name, key, coolMs }).catch(() => undefined);
    if (isBack && key !== undefined) tellChange(key);
  }

  function tellChange(key: string | undefined): void {
    for (const listener of changeListeners) listener(key);
  }

  /** Another policy is in force: callers get the groups and costs that it makes of them. */
  function regroup(callers: readonly Caller[]): void {
    groups.clear();
    tries.forget();
    for (const caller of callers as readonly WaitingCall[]) {
      try {
        caller.group = groups.of(caller.options);
        pacer.wait(caller);
      } catch (error) {
        caller.fail(error);
      }
    }
  }

  function report(
    resultOrError: unknown,
    { slot, cost, read, isSpared }: ReportedCall,
  ): ReportedOutcome | Promise<ReportedOutcome> {
    const { atMs } = slot;
    const key = textOfNamed(slot);
    const estimate = (): Estimate => estimateOf(groups.of({ key, cost }).callTerms);
    return feedback.readOutcome(resultOrError, { key, atMs, estimate, isSpared }, read);
  }

  function onStandInNews(_bucket: string, news: News, key: string | undefined): void {
    if (news === "change") pacer.forget(key);
    askAgain(key, news);
  }

  function askAgain(key?: string, news?: News): void {
    retries.retryNow();
    tries.forget(key);
    pacer.askAgain(key, news);
  }

  function drawByHand(options: ObservedDrawCall): Promise<Slot> {
    isCalledByHand = true;
    // One signal may end a hundred waits; Node would warn of a leak.
    if (options.signal !== undefined) setMaxListeners(Infinity, options.signal);
    const hand = jobSlotInHand(bucket);
    const draw = (): Promise<Slot> =>
      hand === undefined ? admission.draw(options) : drawOnJobSlot(options, hand);
    const drawing = teller.hearsOf("refused")
      ? teller.watchDraw(options, async () => draw())
      : draw();
    return waitInside({ of: name, bucket: name, logger, limit: () => fullLimit(options) }, drawing);
  }

  /** The limit of calls at once that has no place left for such a call. */
  async function fullLimit({ key }: ObservedDrawCall): Promise<string | undefined> {
    const { key: path } = namedOf(key);
    const { limits } = await bucket.peek(path === undefined ? {} : { key: path });
    // When a place comes free is known of all other limits.
    return limits.find((each) => each.remaining === 0 && each.nextFreeMs === undefined)?.name;
  }

  function tryByHand(options: TryCall): Promise<TryDecision> {
    if (!teller.hearsOf("slot") && !teller.hearsOf("refused")) return admission.tryDraw(options);
    return teller.watchTry(options, async () => admission.tryDraw(options));
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    isDeclared,
    logger,
    calls: settings.calls,
    get waiting() {
      return pacer.waiting;
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    // Neither of the two is async: a promise around a promise would cost as much as the rest.
    draw(options) {
      try {
        return drawByHand(options === undefined ? NO_OPTIONS : readDrawOptions("draw()", options));
      } catch (error) {
        return Promise.reject(error as Error);
      }
    },
    tryDraw(options) {
      try {
        return tryByHand(options === undefined ? NO_OPTIONS : readTryOptions("tryDraw()", options));
      } catch (error) {
        return Promise.reject(error as Error);
      }
    },
    drawByHand,
    tryByHand,
    drawOnJobSlot,
    drawForJob: admission.drawForJob,
    checkDrawable: admission.check,
    refusalKnown: admission.refusalKnown,
    whenHopeless: admission.whenHopeless,
    run(fn, options) {
      isCalledByHand = true;
      return runOnce(bucket, fn, options);
    },
    on(event, listener, options) {
      const stop = teller.on(event, listener, options);
      if (event === "change") settings.listen?.();
      return stop;
    },
    off: (event, listener) => teller.off(event, listener),
    throttled: ((fn: AnyFunction, options?: ThrottledOptions<AnyFunction>) => {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    }) as Throttle,
    get fetch() {
      isCalledByHand = true;
      return (fetched ??= createFetch(bucket));
    },
    reportOutcome(resultOrError, slot, cost, read) {
      if (settings.breaker && jobSlotInHand(bucket) === undefined) {
        breaker.noteCall(textOfNamed(slot), resultOrError);
      }
      return report(resultOrError, { slot, cost, read });
    },
    report,
    breaker,
    noteAway,
    readAway: (keys) => store.readAway({ bucket: name, keys }),
    coolDown: (key, coolMs) => feedback.coolDown(key, coolMs),
    outcomesReported: () => feedback.settled(),
    slotOf: (facts) => foundSlots.slotOf(facts),
    settleByResult: settling.settleByResult,
    askAgain,
    forget(key) {
      pacer.forget(key);
      tellChange(key);
      if (key !== undefined || tellsOfAll) teller.changed(key);
    },
    stepsOf(options) {
      // Where all limits are per key, none applies to a call without a key.
      const isUnlimited = options.key === undefined && known.policy.limits.length === 0;
      return isUnlimited ? { sharedMs: 0, keyMs: 0 } : stepsOf(groups.of(options).callTerms);
    },
    get deferred() {
      return pacer.deferred;
    },
    onChange(listener) {
      changeListeners.add(listener);
      return () => changeListeners.delete(listener);
    },
    configure: (given, options) => liveControl.configure(given as PolicyOptions | "code", options),
    pause: liveControl.pause,
    resume: liveControl.resume,
    undo: liveControl.undo,
    async hold(given, forMs) {
      const key = textOfKey(given);
      const isHeld = await liveControl.hold(key, forMs);
      if (isHeld && forMs > 0) teller.cooled(key, forMs);
    },
    peek: liveControl.peek,
    inForce: liveControl.inForce,
    expire: liveControl.expire,
    status: () => readStatus(name, insight, liveControl.inForce()),
    preview: (change) => readPreview(name, insight, liveControl.inForce(), change),
    suppose: async (where, change) => suppose(where, await liveControl.inForce(), change),
    history: (options) => readHistory(name, insight, options),
    told: () => toldOf(tally.take(), pacer.waits()),
    onClose: (fail) => closeListeners.add(fail),
    async close() {
      admission.close();
      retries.close();
      liveControl.close();
      closeListeners.close();
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
  return bucket;
}

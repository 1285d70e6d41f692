import { setMaxListeners } from "node:events";
import type { News } from "../core/store.ts";
import { createAdmission } from "./admission.ts";
import type { Basics } from "./basics.ts";
import type { BucketParts } from "./bucket-parts.ts";
import { createCloseNews } from "./close-news.ts";
import type { OwnedBucket } from "./owned-bucket.ts";
import { readDrawOptions, readTryOptions, type DrawOptions } from "./draw-options.ts";
import { createEstimates, estimateOf, stepsOf, type Estimate } from "./estimates.ts";
import { createFetch } from "./fetch.ts";
import type { ThrottledFetch } from "./throttled-fetch.ts";
import type { Caller } from "./group.ts";
import { createGroups } from "./groups.ts";
import { createKnowledge } from "./known-terms.ts";
import { createLeaseKeeper } from "./lease-keeper.ts";
import { createListener } from "./listener.ts";
import { standByStore } from "./outage/stand-ins.ts";
import { createStoreRetries } from "./outage/store-retries.ts";
import { createPacer, type Pacer } from "./pacer.ts";
import { createRefusals } from "./refusals.ts";
import { createSettling } from "./settling.ts";
import type { Slot } from "./slot.ts";
import { createSecondLook } from "./second-look.ts";
import { takeSlotInHand } from "./slot-in-hand.ts";
import { createSteering } from "./steering.ts";
import { throttle } from "./throttled.ts";
import { createTryDraws } from "./try-draws.ts";
import { createUnitCheck } from "./units.ts";
import type { WaitingCall } from "./waiting-call.ts";

const NO_OPTIONS: DrawOptions = Object.freeze({});

export function createBucket(parts: BucketParts): OwnedBucket {
  const { name, policy, replica, logger, maxWaiting = Infinity, onStoreDown = "refuse" } = parts;
  const { waiting, refusals } = parts.common ?? {
    waiting: () => pacer.waiting,
    refusals: createRefusals(),
  };
  const known = createKnowledge(name, policy, logger);
  const store = standByStore({ ...parts, bucket: name, asker: replica, onStoreDown, wake });
  const waitsForStore = onStoreDown === "wait";
  const startsFull = parts.onStateLost === "full";
  const retries = createStoreRetries(name);
  const basics: Basics = { store, bucket: name, asker: replica, known, logger };
  const leases = createLeaseKeeper(basics);
  const settling = createSettling(basics, (key) => tries.forget(key));
  const groups = createGroups({ name, leases, settle: settling.settle }, () => known.policy);
  const pacer: Pacer = createPacer({ ...basics, leases, regroup, waitsForStore, startsFull });
  const tries = createTryDraws({
    ...basics,
    leases,
    groupOf: (options) => groups.of(options),
    learn: pacer.learn,
    startsFull,
    refusals,
    untilRetry: waitsForStore ? retries.untilRetry : undefined,
  });
  const admission = createAdmission({
    name,
    lookAgain: createSecondLook(basics, pacer.learn),
    assertUnits: createUnitCheck(name, known),
    maxWaiting,
    waiting,
    groups,
    pacer,
    tries,
    estimates: createEstimates(known, pacer),
    listen: parts.listen,
  });
  const listener = createListener(
    { ...basics, onChange: (key) => lookIn(key) },
    parts.feedback ?? {},
  );
  const steering = createSteering({
    ...basics,
    declared: policy,
    waiting,
    onChange: lookIn,
  });
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeNews = createCloseNews(name);
  let isCalledByHand = false;

  /** Another policy is in force: what callers cost, and whom they wait with, is reckoned anew. */
  function regroup(waiting: readonly Caller[]): void {
    groups.clear();
    tries.forget();
    for (const caller of waiting as readonly WaitingCall[]) {
      try {
        caller.group = groups.of(caller.options);
        pacer.wait(caller);
      } catch (error) {
        caller.fail(error);
      }
    }
  }

  /** News from a store that stands in. */
  function wake(_bucket: string, news: News, key: string | undefined): void {
    if (news === "change") pacer.forget(key);
    lookIn(key, news);
  }

  function lookIn(key?: string, news?: News): void {
    retries.retryNow();
    tries.forget(key);
    pacer.lookIn(key, news);
  }

  function drawByHand(options: DrawOptions): Promise<Slot> {
    isCalledByHand = true;
    // One signal may well end a hundred waits; Node would call that a leak.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    const inHand = takeSlotInHand(bucket, options);
    return inHand === undefined ? admission.draw(options) : Promise.resolve(inHand);
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    get waiting() {
      return pacer.waiting;
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    // Neither is async: a promise around a promise would cost as much as the rest.
    draw(options) {
      try {
        return drawByHand(options === undefined ? NO_OPTIONS : readDrawOptions("draw()", options));
      } catch (error) {
        return Promise.reject(error as Error);
      }
    },
    tryDraw(options) {
      try {
        const read = options === undefined ? NO_OPTIONS : readTryOptions("tryDraw()", options);
        return admission.tryDraw(read);
      } catch (error) {
        return Promise.reject(error as Error);
      }
    },
    drawByHand,
    drawForJob: admission.drawForJob,
    checkDrawable: admission.check,
    throttled(fn, options) {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    },
    get fetch() {
      isCalledByHand = true;
      return (fetched ??= createFetch(bucket));
    },
    hear(resultOrError, slot, cost, read) {
      const { key, atMs } = slot;
      const estimate = (): Estimate => estimateOf(groups.of({ key, cost }).conditions);
      return listener.hear(resultOrError, { key, atMs, estimate }, read);
    },
    heard: () => listener.settled(),
    settleBy: settling.settleBy,
    lookIn,
    forget(key) {
      pacer.forget(key);
      for (const listener of changeListeners) listener(key);
    },
    stepsOf(options) {
      // Where all limits are per key, a call of no key takes nothing of anybody.
      const isOfNobody = options.key === undefined && known.policy.limits.length === 0;
      return isOfNobody ? { sharedMs: 0, keyMs: 0 } : stepsOf(groups.of(options).conditions);
    },
    get heldBack() {
      return pacer.heldBack;
    },
    onChange(listener) {
      changeListeners.add(listener);
      return () => changeListeners.delete(listener);
    },
    configure: steering.configure,
    pause: steering.pause,
    resume: steering.resume,
    peek: steering.peek,
    inForce: steering.inForce,
    onClose: (fail) => closeNews.onClose(fail),
    async close() {
      admission.close();
      retries.close();
      steering.close();
      closeNews.close();
      await pacer.close();
      await Promise.all([leases.settled(), listener.settled(), settling.settled()]);
      leases.close();
    },
  };
  let fetched: ThrottledFetch | undefined;
  return bucket;
}

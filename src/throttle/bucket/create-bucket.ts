import { setMaxListeners } from "node:events";
import { ClosedError } from "../../core/errors.ts";
import type { Logger } from "../../core/logger.ts";
import type { Policy } from "../../core/policy/policy.ts";
import type { News, Store } from "../../core/store.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type DrawOptions,
  type FeedbackOptions,
  type ThrottledFetch,
} from "../call-options.ts";
import { estimateOf, stepsOf, type Estimate } from "../costs.ts";
import { createFeedback } from "../feedback/feedback.ts";
import {
  createKnownPolicy,
  createPolicyRefresh,
  createUnitCheck,
  type BucketContext,
} from "../known-policy.ts";
import {
  standByStore,
  type OnStateLost,
  type OnStoreDown,
  type OpenLocalStore,
} from "../outage/on-store-down.ts";
import { createStoreRetries } from "../outage/retries.ts";
import { createLeaseKeeper } from "../slot/leases.ts";
import { createSettling } from "../slot/settle.ts";
import { takeSlotInHand, type Slot } from "../slot/slot.ts";
import { createRefusals, type Refusals } from "../try/refusal-cache.ts";
import { createTryDraws } from "../try/try-draw.ts";
import { createGroups, type Caller } from "../waiting/group.ts";
import { createPacer, type Pacer } from "../waiting/pacer.ts";
import type { WaitingCall } from "../waiting/waiting-call.ts";
import { createFetch } from "../wrap/fetch.ts";
import { throttle } from "../wrap/throttled.ts";
import { createAdmission } from "./admission.ts";
import { createLiveControl } from "./live-control.ts";

const NO_OPTIONS: DrawOptions = Object.freeze({});

export function createBucket(parts: BucketSettings): OwnedBucket {
  const { name, policy, replica, logger, maxWaiting = Infinity, onStoreDown = "refuse" } = parts;
  const { waiting, refusals } = parts.common ?? {
    waiting: () => pacer.waiting,
    refusals: createRefusals(),
  };
  const known = createKnownPolicy(name, policy, logger);
  const store = standByStore({ ...parts, bucket: name, asker: replica, onStoreDown, wake });
  const waitsForStore = onStoreDown === "wait";
  const startsFull = parts.onStateLost === "full";
  const retries = createStoreRetries(name);
  const context: BucketContext = { store, bucket: name, asker: replica, known, logger };
  const leases = createLeaseKeeper(context);
  const settling = createSettling(context, (key) => tries.forget(key));
  const groups = createGroups({ name, leases, settle: settling.settle }, () => known.policy);
  const pacer: Pacer = createPacer({ ...context, leases, regroup, waitsForStore, startsFull });
  const tries = createTryDraws({
    ...context,
    leases,
    groupOf: (options) => groups.of(options),
    learn: pacer.learn,
    startsFull,
    refusals,
    untilRetry: waitsForStore ? retries.untilRetry : undefined,
  });
  const admission = createAdmission({
    name,
    refreshPolicy: createPolicyRefresh(context, pacer.learn),
    assertUnits: createUnitCheck(name, known),
    maxWaiting,
    waiting,
    groups,
    pacer,
    tries,
    known,
    listen: parts.listen,
  });
  const listener = createFeedback(
    { ...context, onChange: (key) => askAgain(key) },
    parts.feedback ?? {},
  );
  const steering = createLiveControl({
    ...context,
    declared: policy,
    waiting,
    onChange: askAgain,
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
    askAgain(key, news);
  }

  function askAgain(key?: string, news?: News): void {
    retries.retryNow();
    tries.forget(key);
    pacer.askAgain(key, news);
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
      const estimate = (): Estimate => estimateOf(groups.of({ key, cost }).callTerms);
      return listener.hear(resultOrError, { key, atMs, estimate }, read);
    },
    heard: () => listener.settled(),
    settleBy: settling.settleBy,
    askAgain,
    forget(key) {
      pacer.forget(key);
      for (const listener of changeListeners) listener(key);
    },
    stepsOf(options) {
      // Where all limits are per key, a call of no key takes nothing of anybody.
      const isOfNobody = options.key === undefined && known.policy.limits.length === 0;
      return isOfNobody ? { sharedMs: 0, keyMs: 0 } : stepsOf(groups.of(options).callTerms);
    },
    get deferred() {
      return pacer.deferred;
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

/** What the parts of one bucket have in common, in this process. */
interface CommonParts {
  /** How many wait in all of them. */
  readonly waiting: () => number;
  /** One for all: it takes its room at once. */
  readonly refusals: Refusals;
}

/** What a bucket is made of. */
export interface BucketSettings {
  readonly name: string;
  readonly policy: Policy;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
  readonly maxWaiting?: number | undefined;
  readonly feedback?: FeedbackOptions | undefined;
  readonly onStoreDown?: OnStoreDown | undefined;
  readonly onStateLost?: OnStateLost | undefined;
  /** What calls go on with when the store does not answer; left out where it always does. */
  readonly openLocalStore?: OpenLocalStore | undefined;
  /** Lets the bucket hear of leases that come free, and of changes; called when it is first drawn from. */
  readonly listen?: (() => void) | undefined;
  /** What it has in common with the other parts, where it is a part of a bucket. */
  readonly common?: CommonParts | undefined;
}

/** Tells those of a bucket's own parts that hold callers back when it is closed. */
interface CloseNews {
  readonly isClosed: boolean;
  /** Calls back when the bucket is closed, at once if it is; returns what ends it. */
  onClose(fail: (reason: ClosedError) => void): () => void;
  close(): void;
}

export function createCloseNews(bucket: string): CloseNews {
  const listeners = new Set<(reason: ClosedError) => void>();
  let closed: ClosedError | undefined;
  return {
    get isClosed() {
      return closed !== undefined;
    },
    onClose(fail) {
      if (closed !== undefined) fail(closed);
      listeners.add(fail);
      return () => listeners.delete(fail);
    },
    close() {
      closed ??= new ClosedError(`Bucket "${bucket}"`);
      for (const fail of listeners) fail(closed);
    },
  };
}

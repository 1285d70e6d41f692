import { setMaxListeners } from "node:events";
import { ClosedError, LineFullError } from "../core/errors.ts";
import type { Logger } from "../core/logger.ts";
import type { Policy } from "../core/policy.ts";
import { stepOf } from "../core/scope.ts";
import type { Priority } from "../core/priority.ts";
import type { Store } from "../core/store.ts";
import type { Basics } from "./basics.ts";
import type { OwnedBucket, TryDecision } from "./bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type DrawOptions,
  type TryOptions,
} from "./draw-options.ts";
import { createEstimates, estimateOf, type Estimate } from "./estimates.ts";
import type { FeedbackOptions } from "./feedback-options.ts";
import { createFetch, type ThrottledFetch } from "./fetch.ts";
import type { Caller, Group } from "./group.ts";
import { createGroups } from "./groups.ts";
import { createKnowledge } from "./known-terms.ts";
import { createLeaseKeeper } from "./lease-keeper.ts";
import { createListener } from "./listener.ts";
import type { OnStateLost, OnStoreDown } from "./outage/outage-options.ts";
import { standByStore, type OpenLocalStore } from "./outage/stand-ins.ts";
import { createStoreRetries } from "./outage/store-retries.ts";
import { createPacer, type Pacer } from "./pacer.ts";
import { createSettling } from "./settling.ts";
import type { Slot } from "./slot.ts";
import { takeSlotInHand } from "./slot-in-hand.ts";
import { createSteering } from "./steering.ts";
import { throttle } from "./throttled.ts";
import { createTryDraws } from "./try-draws.ts";
import { TooFar, WaitingCall, type CallContext, type WaitOptions } from "./waiting-call.ts";

export interface BucketParts {
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
}

const NO_OPTIONS: DrawOptions = Object.freeze({});
/** How full a line may be for each priority. */
const SHED_AT: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};

export function createBucket(parts: BucketParts): OwnedBucket {
  const { name, policy, replica, logger, maxWaiting = Infinity, onStoreDown = "refuse" } = parts;
  const known = createKnowledge(name, policy, logger);
  const store = standByStore({ ...parts, bucket: name, asker: replica, onStoreDown, wake });
  const waitsForStore = onStoreDown === "wait";
  const startsFull = parts.onStateLost === "full";
  const retries = createStoreRetries(name);
  const basics: Basics = { store, bucket: name, asker: replica, known, logger };
  const leases = createLeaseKeeper(basics);
  const { settle, settleBy } = createSettling(basics, (key) => tries.forget(key));
  const groups = createGroups({ name, leases, settle }, () => known.policy);
  const pacer: Pacer = createPacer({ ...basics, leases, regroup, waitsForStore, startsFull });
  const { limitedBy, estimateMs } = createEstimates(known, pacer);
  const tries = createTryDraws({
    ...basics,
    leases,
    groupOf: (options) => groups.of(options),
    learn: pacer.learn,
    startsFull,
    untilRetry: waitsForStore ? retries.untilRetry : undefined,
  });
  const listener = createListener({ ...basics, onChange: lookIn }, parts.feedback ?? {});
  const steering = createSteering({
    ...basics,
    declared: policy,
    waiting: () => pacer.waiting,
    onChange: () => lookIn(),
  });
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeListeners: ((reason: ClosedError) => void)[] = [];
  let callers = 0;
  let isClosed = false;
  let isCalledByHand = false;
  let isListening = false;

  const context: CallContext = {
    name,
    takeNumber: () => (callers += 1),
    leave: (call) => pacer.leave(call),
    limitedBy,
    estimateMs,
  };

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

  /** For changes that others make, and leases that they give back. */
  function listen(): void {
    if (isListening) return;
    isListening = true;
    parts.listen?.();
  }

  /** News from a store that stands in. */
  function wake(_bucket: string, news: "lease" | "change", key: string | undefined): void {
    if (news === "change") pacer.forget(key);
    lookIn(key);
  }

  function lookIn(key?: string): void {
    retries.retryNow();
    tries.forget(key);
    pacer.lookIn(key);
  }

  function join(options: DrawOptions): Group {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    listen();
    return groups.of(options);
  }

  /** As a line fills, it is kept for those who are more urgent. */
  function shed({ priority = "normal", key }: DrawOptions, group: Group): void {
    const { waiting } = pacer;
    const most = maxWaiting * SHED_AT[priority];
    if (waiting < most) return;
    const retryAfterMs = Math.ceil((waiting - most + 1) * group.stepMs);
    throw new LineFullError({ bucket: name, key, waiting, priority, retryAfterMs });
  }

  async function wait(options: DrawOptions): Promise<Slot> {
    options.signal?.throwIfAborted();
    const group = join(options);
    shed(options, group);
    return new Promise((resolve, reject) => {
      pacer.wait(new WaitingCall(context, group, options, { resolve, reject }));
    });
  }

  async function drawForJob(
    options: WaitOptions,
    waits: Set<(reason: string) => void>,
  ): Promise<Slot | TooFar> {
    const group = join(options);
    const roomInMs = group.notBeforeMs - performance.now();
    if (roomInMs > (options.patienceMs ?? Infinity)) return new TooFar(roomInMs);
    let stop = (_reason: string): void => {};
    try {
      return await new Promise((resolve, reject) => {
        const call = new WaitingCall(context, group, options, { resolve, reject });
        stop = (reason) => call.leave(reason);
        waits.add(stop);
        pacer.wait(call);
      });
    } catch (reason) {
      if (reason instanceof TooFar) return reason;
      throw reason;
    } finally {
      waits.delete(stop);
    }
  }

  async function drawByHand(options: DrawOptions): Promise<Slot> {
    isCalledByHand = true;
    // One signal may well end a hundred waits; Node would call that a leak.
    if (options.signal !== undefined) setMaxListeners(0, options.signal);
    return takeSlotInHand(bucket, options) ?? wait(options);
  }

  function tryDraw(options: TryOptions): Promise<TryDecision> {
    if (isClosed) throw new ClosedError(`Bucket "${name}"`);
    listen();
    return tries.ask(options);
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
    async draw(options) {
      return drawByHand(options === undefined ? NO_OPTIONS : readDrawOptions("draw()", options));
    },
    tryDraw(options) {
      // Not async: a promise around a promise would cost as much as the rest of a try.
      try {
        return tryDraw(options === undefined ? NO_OPTIONS : readTryOptions("tryDraw()", options));
      } catch (error) {
        return Promise.reject(error as Error);
      }
    },
    drawForJob,
    assertDrawable(options) {
      groups.of(options);
    },
    throttled(fn, options) {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    },
    get fetch() {
      return (fetched ??= createFetch(bucket));
    },
    hear(resultOrError, slot, options, read) {
      const estimate = (): Estimate => estimateOf(groups.of(options));
      return listener.hear(resultOrError, { key: options.key, atMs: slot.atMs, estimate }, read);
    },
    heard: () => listener.settled(),
    settleBy,
    lookIn,
    forget(key) {
      pacer.forget(key);
      for (const listener of changeListeners) listener(key);
    },
    stepsOf(options) {
      // Where all limits are per key, a call of no key takes nothing of anybody.
      if (options.key === undefined && known.policy.limits.length === 0) {
        return { sharedMs: 0, keyMs: 0 };
      }
      const { shared, keyLimits, costs } = groups.of(options);
      const keyCosts = costs.slice(shared.length);
      return {
        sharedMs: stepOf(shared, costs) / 1_000,
        keyMs: stepOf(keyLimits, keyCosts) / 1_000,
      };
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
    onClose(fail) {
      closeListeners.push(fail);
    },
    async close() {
      isClosed = true;
      retries.close();
      for (const fail of closeListeners) fail(new ClosedError(`Bucket "${name}"`));
      await pacer.close();
      await Promise.all([leases.settled(), listener.settled()]);
      leases.close();
    },
  };
  let fetched: ThrottledFetch | undefined;
  return bucket;
}

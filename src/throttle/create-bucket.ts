import { setMaxListeners } from "node:events";
import { ClosedError, LineFullError } from "../core/errors.ts";
import { formatLimit } from "../core/format-limit.ts";
import { HORIZON_US } from "../core/limit-makers.ts";
import type { Logger } from "../core/logger.ts";
import { LONGEST_MS } from "../core/options.ts";
import { formatPolicy, type Policy } from "../core/policy.ts";
import type { Priority } from "../core/priority.ts";
import type { Store } from "../core/store.ts";
import type { OwnedBucket, TryDecision } from "./bucket.ts";
import { differences } from "./costs.ts";
import {
  readDrawOptions,
  readTryOptions,
  type DrawOptions,
  type TryOptions,
} from "./draw-options.ts";
import type { FeedbackOptions } from "./feedback-options.ts";
import { createFetch, type ThrottledFetch } from "./fetch.ts";
import type { Caller, Group } from "./group.ts";
import { createGroups } from "./groups.ts";
import { createKnowledge } from "./known-terms.ts";
import { createLeaseKeeper } from "./lease-keeper.ts";
import { createListener, type Estimate } from "./listener.ts";
import { createPacer, type Pacer } from "./pacer.ts";
import type { Slot } from "./slot.ts";
import { takeSlotInHand } from "./slot-in-hand.ts";
import { createSteering } from "./steering.ts";
import { throttle } from "./throttled.ts";
import { createTryDraws } from "./try-draws.ts";
import { WaitingCall, type CallContext } from "./waiting-call.ts";

export interface BucketParts {
  readonly name: string;
  readonly policy: Policy;
  readonly store: Store;
  readonly replica: string;
  readonly logger: Logger;
  readonly maxWaiting?: number | undefined;
  readonly feedback?: FeedbackOptions | undefined;
  /** Lets the bucket hear of leases that come free, and of changes; called when it is first drawn from. */
  readonly listen?: (() => void) | undefined;
}

const HORIZON_MS = HORIZON_US / 1_000;
/** When a lease comes free nobody can tell. */
const UNKNOWN_MS = 1_000;
/** An answer that takes so long is what a caller waits for. */
const SILENT_MS = 50;
const NO_OPTIONS: DrawOptions = Object.freeze({});
/** How full a line may be for each priority. */
const SHED_AT: Readonly<Record<Priority, number>> = {
  critical: 1,
  high: 0.9,
  normal: 0.8,
  low: 0.7,
};

export function createBucket(parts: BucketParts): OwnedBucket {
  const { name, policy, store, replica, logger, maxWaiting = Infinity } = parts;
  const known = createKnowledge(name, policy, logger);
  const common = { store, bucket: name, asker: replica, known, logger };
  const leases = createLeaseKeeper(common);
  const { keep: keepLease, release: dropLease } = leases;
  const keeper = { name, leases, settle };
  const groups = createGroups(keeper, () => known.policy);
  const pacer: Pacer = createPacer({ ...common, dropLease, keepLease, regroup });
  const tries = createTryDraws({
    ...common,
    takeLeases: pacer.takeLeases,
    keepLease,
    dropLease,
    groupOf: (options) => groups.of(options),
    learn: pacer.learn,
  });
  const listener = createListener({ ...common, onChange: lookIn }, parts.feedback ?? {});
  const steering = createSteering({
    ...common,
    declared: policy,
    waiting: () => pacer.waiting,
    onChange: () => lookIn(),
  });
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

  async function settle(
    { slotUs, group }: { readonly slotUs: number; readonly group: Group },
    cost: Readonly<Record<string, number | undefined>>,
  ): Promise<void> {
    const { costs, key, keyLimits, limits, text } = group;
    const deltas = differences(name, limits, costs, cost);
    // Under another policy by now, what the numbers meant is gone.
    if (text !== known.terms.text || deltas.every((delta) => delta === 0)) return;
    try {
      await store.settle({ bucket: name, terms: known.terms, key, keyLimits, deltas, slotUs });
      if (deltas.some((delta) => delta < 0)) tries.forget(key);
    } catch (error) {
      logger.warn(
        { bucket: name, reason: String(error) },
        "A cost could not be settled; the estimate stands.",
      );
    }
  }

  function limitedBy({ bindsAt, keyLimits }: Group): string {
    if (pacer.silentMs > SILENT_MS) return "Redis, which has not answered yet";
    const limit = [...known.policy.limits, ...keyLimits][bindsAt - 1];
    if (limit !== undefined) return formatLimit(limit);
    return bindsAt === -1 ? "a cooldown or pause" : formatPolicy(known.policy);
  }

  function estimateOf({ keyLimits, costs, stepMs }: Group): Estimate {
    const limits = [...known.policy.limits, ...keyLimits];
    const costOf = (unit: string): number => {
      const index = limits.findIndex(
        (limit) => limit.unit === unit && limit.kind !== "concurrency",
      );
      return index === -1 ? (unit === "calls" ? 1 : 0) : costs[index]!;
    };
    return { costOf, stepMs };
  }

  function estimateMs(group: Group): number {
    const nowMs = performance.now();
    const { turnAtMs } = pacer;
    // A slot lies a horizon behind the turn at which it is drawn.
    const dueMs = Math.max(group.notBeforeMs, turnAtMs === 0 ? 0 : turnAtMs + HORIZON_MS) - nowMs;
    const waiting = group.keyLimits.length > 0 ? group.line.size : pacer.waiting;
    const least = group.hasLeases ? UNKNOWN_MS : 1;
    return Math.ceil(Math.min(LONGEST_MS, Math.max(least, dueMs, waiting * group.stepMs)));
  }

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

  function lookIn(key?: string): void {
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
    options: DrawOptions,
    waits: Set<(reason: string) => void>,
  ): Promise<Slot> {
    const group = join(options);
    let stop = (_reason: string): void => {};
    try {
      return await new Promise((resolve, reject) => {
        const call = new WaitingCall(context, group, options, { resolve, reject });
        stop = (reason) => call.leave(reason);
        waits.add(stop);
        pacer.wait(call);
      });
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
    throttled(fn, options) {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    },
    get fetch() {
      return (fetched ??= createFetch(bucket));
    },
    hear(resultOrError, slot, options, read) {
      const estimate = (): Estimate => estimateOf(groups.of(options));
      listener.hear(resultOrError, { key: options.key, atMs: slot.atMs, estimate }, read);
    },
    heard: () => listener.settled(),
    settleBy(read, result, slot) {
      const settling = (async () => {
        const cost = await read(result);
        if (cost !== undefined && cost !== null) await slot.settle(cost);
      })();
      // The call went well; that it cannot be told what it cost must not make it fail.
      settling.catch((error: unknown) => {
        const problem = `settle() failed; the estimate of bucket "${name}" stands: ${String(error)}`;
        logger.warn({ bucket: name, reason: String(error) }, problem);
      });
    },
    lookIn,
    forget: pacer.forget,
    configure: steering.configure,
    pause: steering.pause,
    resume: steering.resume,
    peek: steering.peek,
    onClose(fail) {
      closeListeners.push(fail);
    },
    async close() {
      isClosed = true;
      for (const fail of closeListeners) fail(new ClosedError(`Bucket "${name}"`));
      await pacer.close();
      await Promise.all([leases.settled(), listener.settled()]);
      leases.close();
    },
  };
  let fetched: ThrottledFetch | undefined;
  return bucket;
}

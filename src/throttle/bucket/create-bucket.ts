import { setMaxListeners } from "node:events";
import { InvalidOptionError } from "../../core/errors.ts";
import type { Observing } from "../../core/events/observer.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import { firstOfText, namedOf, encodeKey } from "../../core/key-path.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import type { WakeReason } from "../../core/store.ts";
import type { OwnedBucket } from "../bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type AnyFunction,
  type DrawCall,
  type ObservedDrawCall,
  type ThrottledFetch,
  type ThrottledOptions,
  type TryCall,
} from "../call-options.ts";
import type { DownstreamChange } from "../outage/breaker.ts";
import { createBreaker, type BreakerSettings } from "../outage/breaker.ts";
import { unusedJobSlot } from "../slot/job-slot.ts";
import type { KeyedSlot } from "../slot/slot.ts";
import type { TryDecision } from "../try/decision.ts";
import { createRefusals } from "../try/try-draw.ts";
import type { Waits } from "../waiting/dispatch.ts";
import type { CallDefaults } from "../wrap/call-defaults.ts";
import { createFetch } from "../wrap/fetch.ts";
import { runOnce, throttle, waitInside } from "../wrap/throttled.ts";
import type { Throttle } from "../wrap/throttled-types.ts";
import { readWhoAndWhy } from "../../core/input/who-and-why.ts";
import { handleWarnings, readBackups, readBudgetsOptions, type BudgetState } from "./budgets.ts";
import { createBucketEmitter, createCloseListeners } from "./bucket-events.ts";
import {
  answeredKey,
  createPart,
  type BucketPart,
  type PartSettings,
  type SharedByParts,
} from "./bucket-part.ts";
import { readPreview, suppose } from "./facts/preview.ts";
import { readHistory, readStatus } from "./facts/status.ts";
import { activityOf, createTally } from "./facts/tally.ts";
import type { KeyOptions, LiveControl } from "./live-control.ts";
import { createPartStores, partOf } from "./part-stores.ts";

const NO_OPTIONS: DrawCall = Object.freeze({});

/**
 * The number of the part that represents the whole bucket. This part serves calls without a key. In a bucket of 32
 * parts, it rejects such calls.
 */
const FIRST_PART = 0;
const SHARED_LIMITS: readonly (keyof LimitsOptions)[] = ["rate", "burst", "concurrency", "limits"];

export interface BucketSettings extends PartSettings {
  /**
   * Called at the first activity of the process, and at the first activity after each {@link OwnedBucket.takeActivity}.
   */
  readonly onActivity?: (() => void) | undefined;
  readonly observing?: Observing | undefined;
  readonly calls?: CallDefaults | undefined;
  readonly breaker?: BreakerSettings | false | undefined;
}

/** Receives the store's messages about a bucket or one part of it. */
export type WakeListener = (reason: WakeReason, key: string | undefined) => void;

interface Placement {
  /** True if the keys are spread over 32 parts of a cluster. All limits are per key then. */
  readonly isSpread: boolean;
  /** Called for each part that this process opens, to subscribe it to the store's messages. */
  readonly onOpen: (storeName: string, listener: WakeListener) => void;
}

/** Creates a bucket with one part, or with 32 parts that are opened when they are first used. */
export function createBucket(
  settings: BucketSettings,
  { isSpread, onOpen }: Placement,
): OwnedBucket {
  const { name, policy, logger, insight, store } = settings;
  const stores = isSpread ? createPartStores(store, name) : [{ storeName: name, store }];
  const parts: BucketPart[] = [];
  const events = createBucketEmitter(name, logger);
  const tally = createTally(settings);
  const shared: SharedByParts = {
    waiting: () => (isSpread ? sumOf((part) => part.waiting) : parts[FIRST_PART]!.waiting),
    refusals: createRefusals(),
    events,
    tally,
    onLiveChange: redraw,
    inverseOfGrant: (last) => partFor(last.key).budgets.inverseOfGrant(last),
  };
  const breaker = createBreaker({
    bucket: name,
    settings: settings.breaker,
    logger,
    hasOwnLimits: (key) => partFor(key).hasOwnLimits(key),
    coolDown: (key, coolMs) => partFor(key).coolDown(key, coolMs),
    onChange: noteOutage,
  });
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeListeners = createCloseListeners(name);
  let isCalledByHand = false;
  let fetched: ThrottledFetch | undefined;

  /** Returns the part of a key. Only the first name of a key path decides, so all levels of the path share one part. */
  function partFor(key: string | undefined): BucketPart {
    const number = numberFor(key);
    return parts[number] ?? openPart(number);
  }

  function numberFor(key: string | undefined): number {
    return isSpread && key !== undefined ? partOf(firstOfText(key)) : FIRST_PART;
  }

  /** Returns the part for an unvalidated key. The part itself rejects an invalid key. */
  function partForGiven(options: KeyOptions | undefined): BucketPart {
    const key: unknown = options?.key;
    const first: unknown = Array.isArray(key) ? key[0] : key;
    return partFor(typeof first === "string" ? first : undefined);
  }

  function openPart(number: number): BucketPart {
    const { storeName, store } = stores[number]!;
    const part = createPart({ ...settings, store }, shared);
    parts[number] = part;
    if (closeListeners.isClosed) void part.close();
    else onOpen(storeName, (reason, key) => wake(number, reason, key));
    return part;
  }

  function wake(number: number, reason: WakeReason, key: string | undefined): void {
    // Opens the part even if it has no calls: a worker that waits for room may listen to it.
    const part = parts[number] ?? openPart(number);
    if (reason === "change") {
      part.forget(key);
      notifyChange(key);
      // All parts receive a message about a change of the whole bucket. Only the first part emits the event.
      if (key !== undefined || number === FIRST_PART) events.changed(key);
    }
    part.redraw(key, reason);
  }

  function openParts(): readonly BucketPart[] {
    return isSpread ? Object.values(parts) : parts;
  }

  function sumOf(numberOf: (part: BucketPart) => number): number {
    let sum = 0;
    for (const part of openParts()) sum += numberOf(part);
    return sum;
  }

  /**
   * Returns the control of the whole bucket. Each part's store applies changes of the whole bucket to all parts, so any
   * part will do.
   */
  function live(): LiveControl {
    return partFor(undefined).live;
  }

  function notifyChange(key: string | undefined): void {
    for (const listener of changeListeners) listener(key);
  }

  function noteOutage(key: string | undefined, change: DownstreamChange): void {
    const { isBack, isRemote, forMs } = change;
    events.downstreamChanged(key, change);
    if (isRemote) return;
    // Errors are ignored: if the store is down too, other processes detect the outage by their own failures.
    const coolMs = isBack ? undefined : Math.max(1, forMs);
    const note = { bucket: name, key, coolMs };
    partFor(undefined)
      .noteOutage(note)
      .catch(() => undefined);
    if (isBack && key !== undefined) notifyChange(key);
  }

  function redraw(key?: string): void {
    if (key !== undefined) return partFor(key).redraw(key);
    for (const part of openParts()) part.redraw();
  }

  function drawByHand(options: ObservedDrawCall): Promise<KeyedSlot> {
    isCalledByHand = true;
    // One signal may end a hundred waits. Without this, Node would warn about a leak of listeners.
    if (options.signal !== undefined) setMaxListeners(Infinity, options.signal);
    const hand = unusedJobSlot(bucket);
    const draw = (): Promise<KeyedSlot> =>
      hand === undefined
        ? partFor(options.key).draw(options)
        : partFor(options.key ?? hand.drawnFor.key).drawOnJobSlot(options, hand);
    const drawing = events.hasListener("refused")
      ? events.watchDraw(options, async () => draw())
      : draw();
    return waitInside({ of: name, bucket: name, logger, limit: () => fullLimit(options) }, drawing);
  }

  /** Returns the name of the concurrency limit that has no room for a call with these options. */
  async function fullLimit({ key }: ObservedDrawCall): Promise<string | undefined> {
    const { key: path } = namedOf(key);
    const { limits } = await bucket.peek(path === undefined ? {} : { key: path });
    // Only a full concurrency limit has no `nextFreeMs`, because the end of its calls is unknown.
    return limits.find((each) => each.remaining === 0 && each.nextFreeMs === undefined)?.name;
  }

  function tryByHand(options: TryCall): Promise<TryDecision> {
    const part = partFor(options.key);
    if (!events.hasListener("slot") && !events.hasListener("refused")) return part.tryDraw(options);
    return events.watchTry(options, async () => part.tryDraw(options));
  }

  /** Throws if a policy has shared limits, because the parts of a bucket share no state. */
  function assertPerKey(given: PolicyOptions): void {
    const option = SHARED_LIMITS.find((each) => given?.[each] !== undefined);
    if (option === undefined) return;
    const where = `bucket("${name}").configure()`;
    const remedy =
      "all limits of this bucket are per key, and its keys are spread over the cluster: give perKey, " +
      "or declare the bucket with limits that its keys share";
    throw new InvalidOptionError({ where, option, value: given[option], remedy });
  }

  function waits(): Waits {
    const all = openParts().map((part) => part.waits());
    return all.length === 1 ? all[0]! : all.reduce(joinWaits, NO_WAITS);
  }

  /** Returns the budgets of the bucket, and of all keys with a balance, part by part. */
  async function allBudgets(): Promise<readonly BudgetState[]> {
    const own = await partFor(undefined).budgets.budgets();
    const keys = (await partFor(undefined).budgets.keysWithBudgets()).filter(
      (key) => key !== undefined,
    );
    const byPart = new Map<BucketPart, string[]>();
    for (const key of keys) {
      const part = partFor(key);
      byPart.set(part, [...(byPart.get(part) ?? []), key]);
    }
    const all = [own];
    for (const [{ budgets }, ofPart] of byPart) {
      for (let from = 0; from < ofPart.length; from += MOST_KEYS_READ) {
        all.push(await budgets.budgetsOf(ofPart.slice(from, from + MOST_KEYS_READ)));
      }
    }
    return all.flat();
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    isDeclared: settings.findPolicy === undefined,
    logger,
    calls: settings.calls,
    get waiting() {
      return shared.waiting();
    },
    get deferred() {
      return sumOf((part) => part.deferred);
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    // `draw` and `tryDraw` are not async functions, because a second promise would double their cost.
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
    drawForJob: (options, waits) => partFor(options.key).drawForJob(options, waits),
    checkDrawable: (where, options) => partFor(options.key).check(where, options),
    refusalKnown: (options) => partFor(options.key).refusalKnown(options),
    whenHopeless: (options, refuse) => partFor(options.key).whenHopeless(options, refuse),
    stepsOf: (options) => partFor(options.key).stepsOf(options),
    run(fn, options) {
      isCalledByHand = true;
      return runOnce(bucket, fn, options);
    },
    on(event, listener, options) {
      const stop = events.on(event, listener, options);
      if (event === "change") {
        // Opens all parts, because only open parts receive messages about changes.
        for (const number of stores.keys()) if (parts[number] === undefined) openPart(number);
        settings.listen?.();
      }
      return stop;
    },
    off: (event, listener) => events.off(event, listener),
    throttled: ((fn: AnyFunction, options?: ThrottledOptions<AnyFunction>) => {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    }) as Throttle,
    get fetch() {
      isCalledByHand = true;
      return (fetched ??= createFetch(bucket));
    },
    reportOutcome(resultOrError, slot, cost, read) {
      const key = answeredKey(slot);
      if (settings.breaker && unusedJobSlot(bucket) === undefined) {
        breaker.noteCall(key, resultOrError);
      }
      return partFor(key).report(resultOrError, { slot, cost, read });
    },
    report: (resultOrError, of) => partFor(of.slot.encodedKey).report(resultOrError, of),
    breaker,
    noteOutage,
    readOutages: (keys) => partFor(undefined).readOutages({ bucket: name, keys }),
    coolDown: (key, coolMs, cause) => partFor(key).coolDown(key, coolMs, cause),
    async outcomesReported() {
      await Promise.all(openParts().map((part) => part.outcomesReported()));
    },
    slotOf: (facts) => partFor(facts.key).slotOf(facts),
    settleByResult: (read, result, slot) =>
      partFor(slot.encodedKey).settleByResult(read, result, slot),
    redraw,
    changed(key) {
      if (key !== undefined) return wake(numberFor(key), "change", key);
      for (const number of parts.keys())
        if (parts[number] !== undefined) wake(number, "change", key);
    },
    onChange(listener) {
      changeListeners.add(listener);
      return () => changeListeners.delete(listener);
    },
    async configure(given, options) {
      const policy = given as PolicyOptions | "code";
      if (isSpread && policy !== "code") assertPerKey(policy);
      await live().configure(policy, options);
    },
    configureAt: (where, policy, options) => live().configure(policy, options, where),
    pause: (options) => partForGiven(options).live.pause(options),
    resume: (options) => partForGiven(options).live.resume(options),
    undo: (options) => live().undo(options),
    async hold(given, forMs) {
      const key = encodeKey(given);
      const isHeld = await partFor(key).live.hold(key, forMs);
      if (isHeld && forMs > 0) events.cooled(key, forMs);
    },
    async budgets(options) {
      const { key, all } = readBudgetsOptions(options);
      return all ? allBudgets() : partFor(key).budgets.budgets(key);
    },
    grant: (amounts, options) => partForGiven(options).budgets.grant(amounts, options),
    async restore(balances, options) {
      const read = readBackups(balances);
      const { by, reason } = readWhoAndWhy("restore()", options);
      return live().recordRestore({ by, reason }, async () => {
        const results = [];
        for (const each of read) results.push(await partForGiven(each).budgets.restore([each]));
        const restored = results.reduce((sum, result) => sum + result.restored, 0);
        return { restored, skipped: results.flatMap(({ skipped }) => skipped) };
      });
    },
    async handleWarnings(reader) {
      await Promise.all(stores.map(({ store }) => handleWarnings(store, name, reader)));
    },
    peek: (options) => partForGiven(options).live.peek(options),
    inForce: () => live().inForce(),
    members: () => live().members(),
    expire: (override) => live().expire(override),
    status: () =>
      readStatus(name, insight, live().inForce(), {
        budgets: () => partFor(undefined).budgets.budgets(),
        members: () => live().members(),
      }),
    preview: (change) => readPreview(name, insight, live().inForce(), change),
    suppose: async (where, change) => suppose(where, await live().inForce(), change),
    history: (options) => readHistory(name, insight, options),
    takeActivity: () => activityOf(tally.take(), waits()),
    onClose: (fail) => closeListeners.add(fail),
    async close() {
      closeListeners.close();
      await Promise.all(openParts().map((part) => part.close()));
    },
  };
  if (!isSpread) openPart(FIRST_PART);
  return bucket;
}

/** The most keys whose budgets one request reads. */
const MOST_KEYS_READ = 100;

const NO_WAITS: Waits = { byRank: PRIORITIES.map(() => 0), sinceMs: Infinity, most: undefined };

function joinWaits(a: Waits, b: Waits): Waits {
  const isMoreInB = (b.most?.line.size ?? 0) > (a.most?.line.size ?? 0);
  return {
    byRank: a.byRank.map((waiting, rank) => waiting + b.byRank[rank]!),
    sinceMs: Math.min(a.sinceMs, b.sinceMs),
    most: isMoreInB ? b.most : a.most,
  };
}

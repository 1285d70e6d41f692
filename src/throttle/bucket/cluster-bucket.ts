/**
 * A bucket in a cluster whose limits are all per key: its keys are spread over 32 parts, which lie on all nodes. Each
 * part is a bucket of its own, since each node has its own clock; users see one bucket. `createPartStores` at the end
 * does to every part what concerns the bucket as a whole. See docs/decisions/0013-keys-over-a-cluster.md.
 */
import slotOf from "cluster-key-slot";
import { InvalidOptionError } from "../../core/errors.ts";
import { PRIORITIES } from "../../core/input/options.ts";
import { firstOfText, textOfKey, textOfNamed } from "../../core/key-path.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import { ownScopeOf } from "../../core/policy/per-key.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import type {
  Drawn,
  DrawRequest,
  Peeked,
  ScopesRequest,
  Steered,
  SteerRequest,
  Store,
} from "../../core/store.ts";
import type { OwnedBucket, ToldHere } from "../bucket.ts";
import {
  readDrawOptions,
  readTryOptions,
  type AnyFunction,
  type ObservedDrawCall,
  type ThrottledFetch,
  type ThrottledOptions,
} from "../call-options.ts";
import type { Throttle } from "../wrap/throttled-types.ts";
import { jobSlotInHand, type JobSlot } from "../slot/job-slot.ts";
import type { Slot } from "../slot/slot.ts";
import { createBreaker } from "../outage/breaker.ts";
import { createRefusals } from "../try/try-draw.ts";
import { createFetch } from "../wrap/fetch.ts";
import { runOnce, throttle } from "../wrap/throttled.ts";
import { createBucketTeller, createCloseListeners } from "./bucket-events.ts";
import { createTally } from "./facts/tally.ts";
import type { KeyOptions } from "./facts/changes.ts";
import { createBucket, type BucketSettings } from "./create-bucket.ts";

export interface ClusterBucketSettings extends BucketSettings {
  /** Called when a part is first used: from then on, the store's news of this name are for it. */
  readonly onOpen: (storeName: string, part: OwnedBucket) => void;
}

/** The part of calls without a key: no limit applies to them, and the part refuses them, like every bucket. */
const PART_WITHOUT_KEY = 0;
const SHARED: readonly (keyof LimitsOptions)[] = ["rate", "burst", "concurrency", "limits"];

export function createClusterBucket(settings: ClusterBucketSettings): OwnedBucket {
  const { name, policy, onOpen, findPolicy } = settings;
  const stores = createPartStores(settings.store, name);
  const opened = new Map<number, OwnedBucket>();
  const teller = createBucketTeller(name, settings.logger);
  const breaker = createBreaker({
    bucket: name,
    settings: settings.breaker,
    logger: settings.logger,
    hasOwnLimits: (key) => ownScopeOf(policy, key) !== undefined,
    coolDown: (key, coolMs) => partFor(key).coolDown(key, coolMs),
    onAway: (...news) => partFor(undefined).noteAway(...news),
  });
  const tally = createTally(settings);
  const common = {
    waiting: () => bucket.waiting,
    refusals: createRefusals(),
    teller,
    tally,
    breaker,
  };
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeListeners = createCloseListeners(name);
  let isCalledByHand = false;
  let fetched: ThrottledFetch | undefined;

  /** The part of a key, by its first name: all levels of a path lie in one. */
  function partFor(key: string | undefined): OwnedBucket {
    const number = key === undefined ? PART_WITHOUT_KEY : partOf(firstOfText(key));
    return opened.get(number) ?? open(number);
  }

  /** The part of a key that has not been read yet; it refuses one that is not valid. */
  function partForGiven(options: KeyOptions | undefined): OwnedBucket {
    const key: unknown = options?.key;
    const first: unknown = Array.isArray(key) ? key[0] : key;
    return partFor(typeof first === "string" ? first : undefined);
  }

  function open(number: number): OwnedBucket {
    const { storeName, store } = stores[number]!;
    const part = createBucket({
      ...settings,
      store,
      common: { ...common, tellsOfAll: number === PART_WITHOUT_KEY },
    });
    opened.set(number, part);
    part.onChange(tellChange);
    if (closeListeners.isClosed) void part.close();
    else onOpen(storeName, part);
    return part;
  }

  function tellChange(key: string | undefined): void {
    for (const listener of changeListeners) listener(key);
  }

  /** News of changes come to the parts that are open. */
  function openAll(): void {
    for (const number of stores.keys()) if (!opened.has(number)) open(number);
    settings.listen?.();
  }

  /** The parts that this process uses and that may have something of this key, or of any. */
  function openedFor(key: string | undefined): readonly OwnedBucket[] {
    return key === undefined ? [...opened.values()] : [partFor(key)];
  }

  function sum(numberOf: (part: OwnedBucket) => number): number {
    let total = 0;
    for (const part of opened.values()) total += numberOf(part);
    return total;
  }

  function askAgain(key?: string): void {
    for (const part of openedFor(key)) part.askAgain(key);
  }

  /** Steers the part of a key; without a key, all parts in Redis, through one of them. Calls that wait here follow at once. */
  async function steer(
    options: KeyOptions | undefined,
    change: (part: OwnedBucket) => Promise<void>,
  ): Promise<void> {
    await change(partForGiven(options));
    if (options?.key === undefined) askAgain();
  }

  /** A limit for all keys together cannot hold over parts that know nothing of each other. */
  function assertPerKey(given: PolicyOptions): void {
    const option = SHARED.find((each) => given?.[each] !== undefined);
    if (option === undefined) return;
    const where = `bucket("${name}").configure()`;
    const remedy =
      "all limits of this bucket are per key, and its keys are spread over the cluster: give perKey, " +
      "or declare the bucket with limits that its keys share";
    throw new InvalidOptionError({ where, option, value: given[option], remedy });
  }

  function drawByHand(options: ObservedDrawCall): Promise<Slot> {
    isCalledByHand = true;
    const hand = jobSlotInHand(bucket);
    return hand === undefined
      ? partFor(options.key).drawByHand(options)
      : drawOnJobSlot(options, hand);
  }

  /** The part of the call's key draws: it sees whether the job's slot is its own. */
  function drawOnJobSlot(options: ObservedDrawCall, hand: JobSlot): Promise<Slot> {
    return partFor(options.key ?? hand.drawnFor.key).drawOnJobSlot(options, hand);
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    isDeclared: findPolicy === undefined,
    logger: settings.logger,
    calls: settings.calls,
    get waiting() {
      return sum((part) => part.waiting);
    },
    get deferred() {
      return sum((part) => part.deferred);
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    async draw(options) {
      return drawByHand(options === undefined ? {} : readDrawOptions("draw()", options));
    },
    async tryDraw(options) {
      return bucket.tryByHand(options === undefined ? {} : readTryOptions("tryDraw()", options));
    },
    drawByHand,
    tryByHand: (options) => partFor(options.key).tryByHand(options),
    drawOnJobSlot,
    drawForJob: (options, waits) => partFor(options.key).drawForJob(options, waits),
    refusalKnown: (options) => partFor(options.key).refusalKnown(options),
    whenHopeless: (options, refuse) => partFor(options.key).whenHopeless(options, refuse),
    checkDrawable: (where, options) => partFor(options.key).checkDrawable(where, options),
    stepsOf: (options) => partFor(options.key).stepsOf(options),
    run(fn, options) {
      isCalledByHand = true;
      return runOnce(bucket, fn, options);
    },
    on(event, listener, options) {
      const stop = teller.on(event, listener, options);
      if (event === "change") openAll();
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
      return partFor(textOfNamed(slot)).report(resultOrError, { slot, cost, read });
    },
    report: (resultOrError, of) => partFor(textOfNamed(of.slot)).report(resultOrError, of),
    breaker,
    noteAway: (...news) => partFor(undefined).noteAway(...news),
    readAway: (keys) => partFor(undefined).readAway(keys),
    coolDown: (key, coolMs) => partFor(key).coolDown(key, coolMs),
    async outcomesReported() {
      await Promise.all([...opened.values()].map((part) => part.outcomesReported()));
    },
    settleByResult: (read, result, slot) =>
      partFor(textOfNamed(slot)).settleByResult(read, result, slot),
    slotOf: (facts) => partFor(facts.key).slotOf(facts),
    askAgain,
    forget(key) {
      for (const part of openedFor(key)) part.forget(key);
    },
    onChange(listener) {
      changeListeners.add(listener);
      return () => changeListeners.delete(listener);
    },
    async configure(given, options) {
      const policyGiven = given as PolicyOptions | "code";
      if (policyGiven !== "code") assertPerKey(policyGiven);
      await steer(undefined, (part) => part.configure(policyGiven, options));
    },
    pause: (options) => steer(options, (part) => part.pause(options)),
    resume: (options) => steer(options, (part) => part.resume(options)),
    hold: (key, forMs) => partFor(textOfKey(key)).hold(key, forMs),
    async undo(options) {
      const undone = await partFor(undefined).undo(options);
      askAgain();
      return undone;
    },
    async expire(override) {
      await partFor(undefined).expire(override);
      askAgain();
    },
    peek: (options) => partForGiven(options).peek(options),
    status: () => partFor(undefined).status(),
    preview: (change) => partFor(undefined).preview(change),
    suppose: (where, change) => partFor(undefined).suppose(where, change),
    history: (options) => partFor(undefined).history(options),
    told() {
      const told = [...opened.values()].map((part) => part.told());
      const sum = (count: (part: ToldHere) => number): number =>
        told.reduce((total, part) => total + count(part), 0);
      const most = told.toSorted((a, b) => Math.max(...b.waiting) - Math.max(...a.waiting))[0];
      return {
        started: sum(({ started }) => started),
        refused: sum(({ refused }) => refused),
        waiting: PRIORITIES.map((_, rank) => sum(({ waiting }) => waiting[rank]!)),
        oldestMs: Math.max(0, ...told.map(({ oldestMs }) => oldestMs)),
        limitedBy: most?.limitedBy,
      };
    },
    inForce: () => partFor(undefined).inForce(),
    onClose: (fail) => closeListeners.add(fail),
    async close() {
      closeListeners.close();
      await Promise.all([...opened.values()].map((part) => part.close()));
    },
  };
  return bucket;
}

/** The store as one part uses it. */
export interface PartStore {
  /** The part's name in the store: `"stripe:17"`; no bucket of a user can have such a name. */
  readonly storeName: string;
  readonly store: Store;
}

/**
 * Enough for clusters of up to 16 nodes that serve as many slots each: of 3 nodes the fullest has 1.05 times its share
 * of the parts, of 10 nodes 1.25 times. Few enough that tries for many keys still share requests. The number is part of
 * the layout of the state: with another, keys would be looked for in other parts.
 */
const PARTS = 32;
/** How many hash slots a Redis cluster has. */
const SLOTS = 16_384;
/** How often replicas are counted in all parts at most: a queue's forecast looks at its bucket each time. */
const COUNT_EVERY_MS = 1_000;

/**
 * The stores of all parts of a bucket. A request about one key, or about calls that wait, is for one part; a request
 * about the whole bucket goes to every part, also to those that this process has not used.
 */
export function createPartStores(store: Store, bucket: string): PartStore[] {
  const storeNames = storeNamesOf(bucket);
  /** When this process first drew from any part, in µs on that part's clock; 0: not yet. */
  let sinceUs = 0;
  let countedAtMs = -Infinity;
  let replicas = Promise.resolve(0);

  /**
   * A first draw from a part declares the policy as of this process's first draw from any part. Otherwise an old
   * process would replace a newer policy there. A policy that was configured by hand stays in any case.
   */
  async function dated(request: DrawRequest): Promise<DrawRequest> {
    const { bucket: storeName, terms } = request;
    if (terms.version > 0 || sinceUs === 0) return request;
    const { source } = await store.peek({ bucket: storeName, terms, scopes: [] });
    return source !== "code" ? request : { ...request, terms: { ...terms, version: sinceUs } };
  }

  async function draw(request: DrawRequest): Promise<Drawn> {
    const reply = await store.draw(await dated(request));
    if (sinceUs === 0) sinceUs = reply.nowUs;
    return reply;
  }

  /** Steers all parts, also when one fails; then rejects. The first part's generation is that of the bucket. */
  async function steerAll({ generation, ...request }: SteerRequest): Promise<Steered> {
    const [first = "", ...others] = storeNames;
    const steered = await store.steer({ ...request, bucket: first, generation });
    if (steered.isStale) return steered;
    const steering = others.map((storeName) => store.steer({ ...request, bucket: storeName }));
    const failed = (await Promise.allSettled(steering)).find(({ status }) => status === "rejected");
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
    return steered;
  }

  /** The most replicas of any part: a replica draws only from the parts of its keys. */
  async function countReplicas(request: ScopesRequest): Promise<number> {
    const peeking = storeNames.map((storeName) => store.peek({ ...request, bucket: storeName }));
    const answered = (await Promise.allSettled(peeking)).filter(isFulfilled);
    return Math.max(0, ...answered.map(({ value }) => value.alive));
  }

  async function peekAll(request: ScopesRequest): Promise<Peeked> {
    if (performance.now() >= countedAtMs + COUNT_EVERY_MS) {
      countedAtMs = performance.now();
      replicas = countReplicas(request);
    }
    const [peeked, alive] = await Promise.all([store.peek(request), replicas]);
    return { ...peeked, alive: Math.max(alive, peeked.alive) };
  }

  return storeNames.map((storeName) => {
    const withName = <Request extends { readonly bucket: string }>(request: Request): Request => ({
      ...request,
      bucket: storeName,
    });
    const part: Store = {
      draw: (request) => draw(withName(request)),
      giveBack: (request) => store.giveBack(withName(request)),
      settle: (request) => store.settle(withName(request)),
      noteSlot: (note, settling) => store.noteSlot(withName(note), settling && withName(settling)),
      renew: (request) => store.renew(withName(request)),
      release: (request) => store.release(withName(request)),
      steer: (request) =>
        request.scope === undefined ? steerAll(request) : store.steer(withName(request)),
      peek: (request) =>
        request.scopes.length === 0 ? peekAll(withName(request)) : store.peek(withName(request)),
      learn: (request) => store.learn(request),
      // Few are away, and who looks at several keys at once asks one node.
      readAway: (request) => store.readAway({ ...request, bucket: storeNames[0]! }),
      noteAway: (note) => store.noteAway({ ...note, bucket: storeNames[0]! }),
      listen: (asker, wake) => store.listen(asker, wake),
      close: () => store.close(),
    };
    return { storeName, store: part };
  });
}

/** The part of a key: the cluster's hash slots, cut into 32 pieces. */
export function partOf(name: string): number {
  return Math.floor((slotOf(name) * PARTS) / SLOTS);
}

/** For each part, the first name that hashes into it: so the parts are as even over the nodes as the slots. */
function storeNamesOf(bucket: string): string[] {
  const storeNames: string[] = Array.from({ length: PARTS }, () => "");
  for (let number = 0; storeNames.includes(""); number++) {
    const storeName = `${bucket}:${number}`;
    const part = partOf(storeName);
    if (storeNames[part] === "") storeNames[part] = storeName;
  }
  return storeNames;
}

function isFulfilled<T>(outcome: PromiseSettledResult<T>): outcome is PromiseFulfilledResult<T> {
  return outcome.status === "fulfilled";
}

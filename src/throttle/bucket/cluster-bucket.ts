import slotOf from "cluster-key-slot";
import { InvalidOptionError } from "../../core/errors.ts";
import type { LimitsOptions } from "../../core/policy/limit-makers.ts";
import type { PolicyOptions } from "../../core/policy/policy.ts";
import type {
  Drawn,
  DrawRequest,
  Peeked,
  ScopeRequest,
  SteerRequest,
  Store,
} from "../../core/store.ts";
import type { OwnedBucket } from "../bucket.ts";
import { readDrawOptions, type DrawOptions, type ThrottledFetch } from "../call-options.ts";
import { takeSlotInHand, type Slot } from "../slot/slot.ts";
import { createRefusals } from "../try/refusal-cache.ts";
import { createFetch } from "../wrap/fetch.ts";
import { throttle } from "../wrap/throttled.ts";
import { createBucket, createCloseNews, type BucketSettings } from "./create-bucket.ts";

export interface ClusterBucketSettings extends BucketSettings {
  /** Called when a part is first used: from now on, what the store tells of this place is for it. */
  readonly onOpen: (place: string, part: OwnedBucket) => void;
}

/** What a call without a key goes to: no limit applies to it, and the part refuses it, like every bucket. */
const KEYLESS = 0;
const SHARED: readonly (keyof LimitsOptions)[] = ["rate", "burst", "concurrency", "limits"];

/**
 * A bucket whose limits are all per key, for a cluster: its keys are dealt out to parts that lie in different slots.
 * Each part is a bucket of its own, since each node has its own clock; to the user they are one.
 */
export function createClusterBucket(parts: ClusterBucketSettings): OwnedBucket {
  const { name, policy, onOpen } = parts;
  const stores = createPartStores(parts.store, name);
  const opened = new Map<number, OwnedBucket>();
  const common = { waiting: () => bucket.waiting, refusals: createRefusals() };
  const changeListeners = new Set<(key: string | undefined) => void>();
  const closeNews = createCloseNews(name);
  let isCalledByHand = false;

  /** The part of a key; it refuses what is none. */
  function bucketOf(key: string | undefined): OwnedBucket {
    const number = typeof key === "string" ? partOf(key) : KEYLESS;
    return opened.get(number) ?? open(number);
  }

  function open(number: number): OwnedBucket {
    const { place, store } = stores[number]!;
    const part = createBucket({ ...parts, store, common });
    opened.set(number, part);
    part.onChange((key) => {
      for (const listener of changeListeners) listener(key);
    });
    if (closeNews.isClosed) void part.close();
    else onOpen(place, part);
    return part;
  }

  /** The parts that may have something of this key, or of any. */
  function openedFor(key: string | undefined): readonly OwnedBucket[] {
    return key === undefined ? [...opened.values()] : [bucketOf(key)];
  }

  function sum(numberOf: (part: OwnedBucket) => number): number {
    let total = 0;
    for (const part of opened.values()) total += numberOf(part);
    return total;
  }

  function askAgain(key?: string): void {
    for (const part of openedFor(key)) part.askAgain(key);
  }

  /** Steers the part of a key; without one all parts in Redis, by way of one of them. Callers here feel it at once. */
  async function steer(
    key: string | undefined,
    how: (part: OwnedBucket) => Promise<void>,
  ): Promise<void> {
    await how(bucketOf(key));
    if (key === undefined) askAgain();
  }

  /** What all keys share cannot hold over parts that know nothing of each other. */
  function assertPerKey(given: PolicyOptions): void {
    const option = SHARED.find((each) => given?.[each] !== undefined);
    if (option === undefined) return;
    const where = `bucket("${name}").configure()`;
    const remedy =
      "all limits of this bucket are per key, and its keys lie all over the cluster: give perKey, " +
      "or declare the bucket with limits that its keys share";
    throw new InvalidOptionError({ where, option, value: given[option], remedy });
  }

  function drawByHand(options: DrawOptions): Promise<Slot> {
    isCalledByHand = true;
    const inHand = takeSlotInHand(bucket, options);
    return inHand === undefined
      ? bucketOf(options.key).drawByHand(options)
      : Promise.resolve(inHand);
  }

  const bucket: OwnedBucket = {
    name,
    policy,
    get waiting() {
      return sum((part) => part.waiting);
    },
    get deferred() {
      return sum((part) => part.deferred);
    },
    get isCalledByHand() {
      return isCalledByHand;
    },
    async draw(options = {}) {
      return drawByHand(readDrawOptions("draw()", options));
    },
    tryDraw: (options) => bucketOf(options?.key).tryDraw(options),
    drawByHand,
    drawForJob: (options, waits) => bucketOf(options.key).drawForJob(options, waits),
    checkDrawable: (where, options) => bucketOf(options.key).checkDrawable(where, options),
    stepsOf: (options) => bucketOf(options.key).stepsOf(options),
    throttled(fn, options) {
      isCalledByHand = true;
      return throttle(bucket, fn, options);
    },
    get fetch() {
      isCalledByHand = true;
      return (fetched ??= createFetch(bucket));
    },
    hear: (resultOrError, slot, cost, read) =>
      bucketOf(slot.key).hear(resultOrError, slot, cost, read),
    async heard() {
      await Promise.all([...opened.values()].map((part) => part.heard()));
    },
    settleBy: (read, result, slot) => bucketOf(slot.key).settleBy(read, result, slot),
    askAgain,
    forget(key) {
      for (const part of openedFor(key)) part.forget(key);
    },
    onChange(listener) {
      changeListeners.add(listener);
      return () => changeListeners.delete(listener);
    },
    async configure(given) {
      if (given !== "code") assertPerKey(given);
      await steer(undefined, (part) => part.configure(given));
    },
    pause: (options) => steer(options?.key, (part) => part.pause(options)),
    resume: (options) => steer(options?.key, (part) => part.resume(options)),
    peek: (options) => bucketOf(options?.key).peek(options),
    inForce: () => bucketOf(undefined).inForce(),
    onClose: (fail) => closeNews.onClose(fail),
    async close() {
      closeNews.close();
      await Promise.all([...opened.values()].map((part) => part.close()));
    },
  };
  let fetched: ThrottledFetch | undefined;
  return bucket;
}

/** One part of a spread bucket: a bucket of its own in the store. */
export interface PartStore {
  /** What the store knows the part by: `"stripe:17"`; no bucket of a user's can have such a name. */
  readonly place: string;
  readonly store: Store;
}

/**
 * Enough for clusters of up to 16 nodes that serve as many slots each: of 3 the fullest has 1.05 times its share of
 * the parts, of 10 1.25 times. Few enough that tries for many keys still share requests. As fixed as the layout of
 * the state: with another number, keys are looked for elsewhere.
 */
const PARTS = 32;
/** How many hash slots a Redis cluster has. */
const SLOTS = 16_384;
/** Replicas are counted in all parts so often at most: a queue's outlook looks at its bucket each time. */
const COUNT_EVERY_MS = 1_000;

/**
 * The parts of a bucket in a store. What concerns one key, or those who wait, is the part's own affair;
 * what is done to the bucket as a whole is done to every part, whether this process has used it or not.
 */
export function createPartStores(store: Store, bucket: string): PartStore[] {
  const places = placesOf(bucket);
  /** When this process first drew from any part, in µs on that part's clock; 0: not yet. */
  let sinceUs = 0;
  let countedAtMs = -Infinity;
  let replicas = Promise.resolve(0);

  /**
   * A part that is drawn from late declares the policy as of this process's first draw: an old process must not
   * pass for a new one there. What was configured by hand stays, whenever that was.
   */
  async function dated(request: DrawRequest): Promise<DrawRequest> {
    const { bucket: place, terms } = request;
    if (terms.version > 0 || sinceUs === 0) return request;
    const look = { bucket: place, terms, key: undefined, keyLimits: [] };
    const { isOverride } = await store.peek(look);
    return isOverride ? request : { ...request, terms: { ...terms, version: sinceUs } };
  }

  async function draw(request: DrawRequest): Promise<Drawn> {
    const reply = await store.draw(await dated(request));
    if (sinceUs === 0) sinceUs = reply.nowUs;
    return reply;
  }

  /** Tries all of them, also when one fails: what could be done is done. */
  async function steerAll(request: SteerRequest): Promise<void> {
    const steering = places.map((place) => store.steer({ ...request, bucket: place }));
    const failed = (await Promise.allSettled(steering)).find(({ status }) => status === "rejected");
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
  }

  /** The most that any part was drawn by of late: a replica draws from the parts of its keys only. */
  async function countReplicas(request: ScopeRequest): Promise<number> {
    const peeking = places.map((place) => store.peek({ ...request, bucket: place }));
    const answered = (await Promise.allSettled(peeking)).filter(isFulfilled);
    return Math.max(0, ...answered.map(({ value }) => value.alive));
  }

  async function peekAll(request: ScopeRequest): Promise<Peeked> {
    if (performance.now() >= countedAtMs + COUNT_EVERY_MS) {
      countedAtMs = performance.now();
      replicas = countReplicas(request);
    }
    const [peeked, alive] = await Promise.all([store.peek(request), replicas]);
    return { ...peeked, alive: Math.max(alive, peeked.alive) };
  }

  return places.map((place) => {
    const here = <Request extends { readonly bucket: string }>(request: Request): Request => ({
      ...request,
      bucket: place,
    });
    const part: Store = {
      draw: (request) => draw(here(request)),
      giveBack: (request) => store.giveBack(here(request)),
      settle: (request) => store.settle(here(request)),
      renew: (request) => store.renew(here(request)),
      release: (request) => store.release(here(request)),
      steer: (request) =>
        request.key === undefined ? steerAll(request) : store.steer(here(request)),
      peek: (request) =>
        request.key === undefined ? peekAll(here(request)) : store.peek(here(request)),
      listen: (asker, wake) => store.listen(asker, wake),
      close: () => store.close(),
    };
    return { place, store: part };
  });
}

/** The part that a name lies in: a cluster's slots, cut into as many pieces. */
export function partOf(name: string): number {
  return Math.floor((slotOf(name) * PARTS) / SLOTS);
}

/** For each part, the first name that lies in it itself: so the parts are as even over the nodes as the slots. */
function placesOf(bucket: string): string[] {
  const places: string[] = Array.from({ length: PARTS }, () => "");
  for (let number = 0; places.includes(""); number++) {
    const place = `${bucket}:${number}`;
    const part = partOf(place);
    if (places[part] === "") places[part] = place;
  }
  return places;
}

function isFulfilled<T>(outcome: PromiseSettledResult<T>): outcome is PromiseFulfilledResult<T> {
  return outcome.status === "fulfilled";
}

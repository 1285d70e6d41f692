import { InvalidOptionError } from "../core/errors.ts";
import type { LimitsOptions } from "../core/policy/limit-makers.ts";
import type { PolicyOptions } from "../core/policy/policy.ts";
import type { BucketParts } from "./bucket-parts.ts";
import { createCloseNews } from "./close-news.ts";
import { createBucket } from "./create-bucket.ts";
import { readDrawOptions, type DrawOptions } from "./draw-options.ts";
import { createFetch } from "./fetch.ts";
import type { OwnedBucket } from "./owned-bucket.ts";
import { createRefusals } from "./refusals.ts";
import { takeSlotInHand } from "./slot-in-hand.ts";
import type { Slot } from "./slot.ts";
import { createPartStores, partOf } from "./spread-store.ts";
import type { ThrottledFetch } from "./throttled-fetch.ts";
import { throttle } from "./throttled.ts";

export interface SpreadBucketParts extends BucketParts {
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
export function createSpreadBucket(parts: SpreadBucketParts): OwnedBucket {
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

  function lookIn(key?: string): void {
    for (const part of openedFor(key)) part.lookIn(key);
  }

  /** Steers the part of a key; without one all parts in Redis, by way of one of them. Callers here feel it at once. */
  async function steer(
    key: string | undefined,
    how: (part: OwnedBucket) => Promise<void>,
  ): Promise<void> {
    await how(bucketOf(key));
    if (key === undefined) lookIn();
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
    get heldBack() {
      return sum((part) => part.heldBack);
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
    lookIn,
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

/**
 * A bucket whose limits are all per key is stored in 32 parts, which a cluster spreads over its nodes. Each part uses the
 * clock of its node. See docs/decisions/keys.md#keys-that-share-no-limit-spread-over-a-cluster.
 */
import slotOf from "cluster-key-slot";
import type {
  Drawn,
  DrawRequest,
  Peeked,
  ScopesRequest,
  Steered,
  SteerRequest,
  Store,
} from "../../core/store.ts";

/** The store of one part of a bucket. */
export interface PartStore {
  /** The part's name in the store: `"stripe:17"`. Bucket names cannot contain a colon, so the name is unique. */
  readonly storeName: string;
  readonly store: Store;
}

/**
 * The number of parts. It is enough for clusters of up to 16 equal nodes: the fullest of 3 nodes has 1.05 times its
 * share of the parts, and of 10 nodes 1.25 times. It is low enough that tries for many keys still share requests. Never
 * change this number: processes would look for stored keys in other parts.
 */
const PARTS = 32;
/** The number of hash slots in a Redis cluster. */
const SLOTS = 16_384;
/**
 * The shortest time between two counts of the replicas over all parts. Each queue forecast needs this count, so it is
 * cached.
 */
const COUNT_EVERY_MS = 1_000;

/**
 * Creates the stores of all parts of a bucket. Requests for one key or for waiting calls go to one part. Requests for the
 * whole bucket go to all parts, even those that this process has not used.
 */
export function createPartStores(store: Store, bucket: string): PartStore[] {
  const storeNames = storeNamesOf(bucket);
  /** The time of this process's first draw from any part, in µs on that part's clock. 0 before the first draw. */
  let sinceUs = 0;
  let countedAtMs = -Infinity;
  let replicas = Promise.resolve(0);

  /**
   * Sets the date of the policy declaration in this process's first draw from a part. The date is that of the process's
   * first draw from any part. Otherwise, an old process that opens a part late would replace a newer policy there.
   * Overrides are never replaced.
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

  /**
   * Changes the whole bucket, which means each of its parts. Only the first part checks `generation`. If another part
   * fails, rejects after the requests to all parts have ended.
   */
  async function steerAll({ generation, ...request }: SteerRequest): Promise<Steered> {
    const [first = "", ...others] = storeNames;
    const steered = await store.steer({ ...request, bucket: first, generation });
    if (steered.isStale) return steered;
    const steering = others.map((storeName) => store.steer({ ...request, bucket: storeName }));
    const failed = (await Promise.allSettled(steering)).find(({ status }) => status === "rejected");
    if (failed !== undefined) throw (failed as PromiseRejectedResult).reason;
    return steered;
  }

  /**
   * Returns the largest number of replicas in any part. No part sees all replicas, because a replica draws only from
   * the parts of its keys.
   */
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
      budgets: (request) => store.budgets(withName(request)),
      async keysWithBudgets() {
        const reading = storeNames.map((each) => store.keysWithBudgets(each));
        return (await Promise.all(reading)).flat();
      },
      readWarnings: (request) => store.readWarnings(withName(request)),
      learn: (request) => store.learn(request),
      // Outages are few, so all are stored in the first part. A read for several keys then needs only one node.
      readOutages: (request) => store.readOutages({ ...request, bucket: storeNames[0]! }),
      noteOutage: (note) => store.noteOutage({ ...note, bucket: storeNames[0]! }),
      listen: (replica, wake) => store.listen(replica, wake),
      close: () => store.close(),
    };
    return { storeName, store: part };
  });
}

/** Returns the number of a key's part. Each part covers one of 32 equal ranges of the cluster's hash slots. */
export function partOf(name: string): number {
  return Math.floor((slotOf(name) * PARTS) / SLOTS);
}

/**
 * Returns a store name for each part. The name hashes into the part's own range, so a cluster spreads parts over its
 * nodes like hash slots.
 */
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

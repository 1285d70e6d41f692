import slotOf from "cluster-key-slot";
import type {
  Drawn,
  DrawRequest,
  Peeked,
  ScopeRequest,
  SteerRequest,
  Store,
} from "../core/store.ts";

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

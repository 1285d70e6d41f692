/**
 * Serves the draws of one bucket from a stand-in while Redis does not answer.
 *
 * The first draw that fails starts the outage. During the outage, each draw also sends a probe to
 * Redis, and the first probe that succeeds ends the outage. A probe is a real draw, because a Redis
 * that refuses writes still answers reads. Slots and leases are always settled, renewed and given
 * back where they were drawn: in Redis or in the stand-in.
 */
import { DREW_ELSEWHERE_US } from "../../core/store.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import {
  limitsOfCall,
  NO_POSITION,
  slotOfRun,
  type Drawn,
  type DrawRequest,
  type LeasesRequest,
  type Settled,
  type SettleRequest,
  type Store,
  type SlotRequest,
} from "../../core/store.ts";
import { createBucketClock } from "../slot/bucket-clock.ts";
import type { KnownAtOutage, FallbackStore } from "./fallback-stores.ts";

export interface OutageStoreOptions {
  readonly store: Store;
  readonly bucket: string;
  /**
   * Opens the stand-in for an outage. If it returns undefined, there is no stand-in, and the draw
   * fails with Redis's error.
   */
  readonly openFallback: (known: KnownAtOutage) => FallbackStore | undefined;
}

/** One outage of Redis. Times are in µs on the bucket's clock. */
interface Outage {
  readonly fallback: FallbackStore;
  readonly sinceUs: number;
}

export function createOutageStore({ store, bucket, openFallback }: OutageStoreOptions): Store {
  const clock = createBucketClock();
  const replicas = createReplicasSeen();
  const running = createRunningLeases();
  /**
   * How far this process's clock is ahead of the bucket's clock, in ms. Undefined before the first
   * reply of Redis.
   */
  let offsetMs: number | undefined;
  let outage: Outage | undefined;
  let lastOutage = { sinceUs: 0, untilUs: 0 };
  /** True from the end of an outage until Redis has the bucket's policy again. */
  let isReturning = false;
  /**
   * True from the end of an outage until the next draw. During this time, callers have queue
   * positions from the stand-in, which Redis does not know.
   */
  let hasStandInPositions = false;
  let isProbing = false;

  function begin(): Outage | undefined {
    const offset = offsetMs;
    const nowUs =
      offset === undefined ? undefined : () => Math.floor((performance.now() - offset) * 1_000);
    const runningOf = (key?: string): number => running.countOfRedis(key);
    const fallback = openFallback({ nowUs, replicas: replicas.most, runningOf });
    return fallback && { fallback, sinceUs: fallback.nowUs() };
  }

  function end(ended: Outage): void {
    if (outage !== ended) return;
    lastOutage = { sinceUs: ended.sinceUs, untilUs: ended.fallback.nowUs() };
    outage = undefined;
    isReturning = true;
    hasStandInPositions = true;
  }

  /** Checks in the background whether Redis serves draws again. */
  function probe(request: DrawRequest, current: Outage): void {
    if (isProbing) return;
    isProbing = true;
    drawOne(request)
      .then(
        () => end(current),
        // Any reply ends the outage. If Redis rejected the request, the next draw gets that error
        // from Redis itself.
        (error: unknown) => void (error instanceof StoreUnavailableError || end(current)),
      )
      .finally(() => (isProbing = false));
  }

  /**
   * Draws one call and gives the slot back immediately, because the stand-in already served that
   * call.
   */
  async function drawOne({ slotRequests, leases, ...rest }: DrawRequest): Promise<void> {
    const slotRequest = { ...withoutPositions(slotRequests[0]!), wanted: 1 };
    const one = { ...rest, slotRequests: [slotRequest], leases: Math.min(leases, 1), isTry: false };
    const reply = await drawReturning({ ...one, horizonUs: HORIZON_US, position: NO_POSITION });
    const [granted] = reply.granted;
    if (granted === undefined) return;
    const { asker, terms, lease } = rest;
    const scopes = slotRequest.scopes.map((scope, at) => ({
      ...scope,
      position: granted.positions[at]!,
    }));
    const { slotsUs, run } = granted;
    const slots = run === undefined ? slotsUs : [slotOfRun(run, 0)];
    const back = { bucket, asker, terms, generation: reply.generation, position: reply.position };
    const giving: Promise<unknown>[] = [
      store.giveBack({ ...back, slotRequest: { ...slotRequest, scopes }, slotsUs: slots }),
    ];
    if (leases > 0) {
      giving.push(store.release({ bucket, asker, terms, scopes, leases: [lease] }));
    }
    await Promise.allSettled(giving);
  }

  /**
   * Draws for the first time after an outage. Redis did not see the calls of the outage, so the
   * bucket starts as if it had just granted a burst.
   */
  function drawReturning(request: DrawRequest): Promise<Drawn> {
    return sendDraw({ ...request, drewUs: DREW_ELSEWHERE_US, startsFull: false });
  }

  async function sendDraw(request: DrawRequest): Promise<Drawn> {
    const reply = await store.draw(request);
    offsetMs = clock.sample(performance.now(), reply.nowUs);
    replicas.see(reply.alive);
    return reply;
  }

  async function drawFromRedis(request: DrawRequest): Promise<Drawn> {
    const areUnknown = hasStandInPositions && !request.isTry;
    const slotRequests = areUnknown
      ? request.slotRequests.map(withoutPositions)
      : request.slotRequests;
    const position = areUnknown ? NO_POSITION : request.position;
    const known = { ...request, slotRequests, position };
    const reply = await (isReturning ? drawReturning(known) : sendDraw(known));
    if (reply.newText === undefined) isReturning = false;
    if (areUnknown) hasStandInPositions = false;
    running.add(request, reply, undefined);
    return reply;
  }

  async function drawFromStandIn(request: DrawRequest, current: Outage): Promise<Drawn> {
    const reply = await current.fallback.draw(request);
    running.add(request, reply, current.fallback);
    return reply;
  }

  async function draw(request: DrawRequest): Promise<Drawn> {
    if (outage === undefined) {
      try {
        return await drawFromRedis(request);
      } catch (error) {
        if (!(error instanceof StoreUnavailableError)) throw error;
        outage ??= begin();
        if (outage === undefined) throw error;
      }
    }
    const current = outage;
    probe(request, current);
    return drawFromStandIn(request, current);
  }

  /**
   * Returns the part of a settlement that Redis must book. If the slot was drawn during the outage,
   * Redis never booked the estimate, so only additional cost counts.
   */
  function partForRedis(request: SettleRequest): SettleRequest | undefined {
    const { slotUs, deltas } = request;
    if (slotUs < lastOutage.sinceUs || slotUs > lastOutage.untilUs) return request;
    const more = deltas.map((delta) => Math.max(0, delta));
    return more.some((delta) => delta > 0)
      ? { ...request, deltas: more, reserved: undefined }
      : undefined;
  }

  async function settle(request: SettleRequest): Promise<Settled | undefined> {
    if (outage !== undefined && request.slotUs >= outage.sinceUs) {
      return outage.fallback.settle(request);
    }
    const settling = partForRedis(request);
    return settling && store.settle(settling);
  }

  /** Calls `send` for each store, with the leases that this store granted, and the latencies of their calls. */
  async function forEachGranter<T>(
    request: LeasesRequest,
    send: (granter: Pick<Store, "renew" | "release">, own: LeasesRequest) => Promise<T>,
  ): Promise<T[]> {
    const { latenciesUs } = request;
    const byGranter = running.byGranter(request.leases);
    if (latenciesUs === undefined || byGranter.size === 1)
      return Promise.all(
        [...byGranter].map(([granter, leases]) => send(granter ?? store, { ...request, leases })),
      );
    const latencyOf = new Map(request.leases.map((lease, index) => [lease, latenciesUs[index]!]));
    return Promise.all(
      [...byGranter].map(([granter, leases]) => {
        const own = leases.map((lease) => latencyOf.get(lease)!);
        return send(granter ?? store, { ...request, leases, latenciesUs: own });
      }),
    );
  }

  return {
    ...store,
    draw,
    settle,
    noteSlot: (note, settling) => store.noteSlot(note, settling && partForRedis(settling)),
    async giveBack(request) {
      await (outage?.fallback ?? store).giveBack(request);
    },
    async renew(request) {
      return (await forEachGranter(request, (granter, own) => granter.renew(own))).flat();
    },
    async release(request) {
      const released = forEachGranter(request, (granter, own) => granter.release(own));
      running.remove(request.leases);
      return (await released).flat();
    },
    async steer(request) {
      const { change } = request;
      // An operator's change must reach all replicas, so it fails during an outage. A cooldown is
      // sent to the stand-in, because it also helps if it applies to this process alone.
      const isByHand = change.do === "configure" || change.do === "pause";
      return (isByHand ? store : (outage?.fallback ?? store)).steer(request);
    },
  };
}

/**
 * Estimates the number of replicas that draw from a bucket: the highest number in the replies of
 * the last 30 to 60 seconds.
 */
export interface ReplicasSeen {
  /** The estimated number of replicas. 0 before the first reply. */
  readonly most: number;
  see(alive: number): void;
}

const WINDOW_MS = 30_000;

export function createReplicasSeen(): ReplicasSeen {
  let windowEndsMs = -Infinity;
  let most = 0;
  let mostBefore = 0;

  return {
    get most() {
      return Math.max(most, mostBefore);
    },
    see(alive) {
      const nowMs = performance.now();
      if (nowMs >= windowEndsMs) {
        mostBefore = most;
        most = 0;
        windowEndsMs = nowMs + WINDOW_MS;
      }
      most = Math.max(most, alive);
    },
  };
}

/** Returns a copy of the request without queue positions. */
function withoutPositions(slotRequest: SlotRequest): SlotRequest {
  return {
    ...slotRequest,
    scopes: slotRequest.scopes.map((scope) => ({ ...scope, position: NO_POSITION })),
  };
}

/**
 * The leases of the calls that run in this process. Each lease is stored with the store that
 * granted it: a stand-in, or undefined for Redis.
 */
interface RunningLeases {
  /** Adds the leases that a reply granted. */
  add(request: DrawRequest, reply: Drawn, granter: FallbackStore | undefined): void;
  remove(leases: readonly number[]): void;
  /** Returns the number of leases that Redis granted, for one key or for all keys. */
  countOfRedis(key?: string): number;
  /** Groups leases by the store that granted them. Unknown leases count as granted by Redis. */
  byGranter(leases: readonly number[]): ReadonlyMap<FallbackStore | undefined, readonly number[]>;
}

function createRunningLeases(): RunningLeases {
  const running = new Map<
    number,
    { granter: FallbackStore | undefined; scopes: SlotRequest["scopes"] }
  >();

  return {
    add({ leases, lease: first, slotRequests, terms }, { granted }, granter) {
      if (leases === 0) return;
      let lease = first;
      for (const [index, { slotsUs }] of granted.entries()) {
        const { scopes, costs } = slotRequests[index]!;
        const limits = limitsOfCall(terms.limits, scopes);
        if (!limits.some(isLeased)) continue;
        const areHeld = limits.some((limit, at) => isLeased(limit) && costs[at]! > 0);
        for (const _slot of slotsUs) {
          if (areHeld) running.set(lease, { granter, scopes });
          lease += 1;
        }
      }
    },
    remove(leases) {
      for (const lease of leases) running.delete(lease);
    },
    countOfRedis(key) {
      let count = 0;
      for (const each of running.values()) {
        const isOfKey = key === undefined || each.scopes.some((scope) => scope.key === key);
        if (each.granter === undefined && isOfKey) count += 1;
      }
      return count;
    },
    byGranter(leases) {
      const found = new Map<FallbackStore | undefined, number[]>();
      for (const lease of leases) {
        const granter = running.get(lease)?.granter;
        found.set(granter, [...(found.get(granter) ?? []), lease]);
      }
      return found;
    },
  };
}

/**
 * The store of one bucket whose calls go on without Redis. When a draw finds that Redis does not answer, a stand-in
 * serves until Redis does again, which probes beside the draws find out. A probe is a draw itself: a Redis that refuses
 * writes still answers a look. What was drawn from one of the two is settled, renewed and given back there.
 */
import { DREW_ELSEWHERE_US } from "../../core/draw/bucket-state.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import { HORIZON_US } from "../../core/policy/limit-makers.ts";
import {
  limitsOfCall,
  NO_PLACE,
  slotOfRun,
  type Drawn,
  type DrawRequest,
  type LeasesRequest,
  type SettleRequest,
  type Store,
  type Wish,
} from "../../core/store.ts";
import { createBucketClock } from "../slot/bucket-clock.ts";
import type { KnownAtOutage, StandIn } from "./stand-ins.ts";

export interface OutageStoreOptions {
  readonly store: Store;
  readonly bucket: string;
  /** Opens what serves during an outage; undefined if nothing can: the call then fails as it would have. */
  readonly openStandIn: (known: KnownAtOutage) => StandIn | undefined;
}

/** A time in which Redis does not answer; times are in µs on the bucket's clock. */
interface Outage {
  readonly standIn: StandIn;
  readonly sinceUs: number;
}

export function createOutageStore({ store, bucket, openStandIn }: OutageStoreOptions): Store {
  const clock = createBucketClock();
  const replicas = createReplicasSeen();
  const running = createRunningLeases();
  /** How far this process's clock runs ahead of the bucket's; undefined until Redis has answered. */
  let offsetMs: number | undefined;
  let outage: Outage | undefined;
  let lastOutage = { sinceUs: 0, untilUs: 0 };
  /** From the end of an outage until Redis knows the bucket again. */
  let isReturning = false;
  /** From the end of an outage until the next draw: callers have places of the stand-in, which Redis does not know. */
  let hasForeignPlaces = false;
  let isProbing = false;

  function begin(): Outage | undefined {
    const offset = offsetMs;
    const nowUs =
      offset === undefined ? undefined : () => Math.floor((performance.now() - offset) * 1_000);
    const runningOf = (key?: string): number => running.countOfRedis(key);
    const standIn = openStandIn({ nowUs, replicas: replicas.most, runningOf });
    return standIn && { standIn, sinceUs: standIn.nowUs() };
  }

  function end(ended: Outage): void {
    if (outage !== ended) return;
    lastOutage = { sinceUs: ended.sinceUs, untilUs: ended.standIn.nowUs() };
    outage = undefined;
    isReturning = true;
    hasForeignPlaces = true;
  }

  /** Finds out whether Redis takes draws again; no call waits for it. */
  function probe(request: DrawRequest, current: Outage): void {
    if (isProbing) return;
    isProbing = true;
    drawOne(request)
      .then(
        () => end(current),
        // Whatever else is wrong with the request, calls are to hear of it from Redis.
        (error: unknown) => void (error instanceof StoreUnavailableError || end(current)),
      )
      .finally(() => (isProbing = false));
  }

  /** Draws one call of these, and gives back what that took: it has left by the stand-in. */
  async function drawOne({ wishes, leases, ...rest }: DrawRequest): Promise<void> {
    const wish = { ...placeless(wishes[0]!), wanted: 1 };
    const one = { ...rest, wishes: [wish], leases: Math.min(leases, 1), isTry: false };
    const reply = await drawReturning({ ...one, horizonUs: HORIZON_US, place: NO_PLACE });
    const [granted] = reply.granted;
    if (granted === undefined) return;
    const { asker, terms, lease } = rest;
    const scopes = wish.scopes.map((scope, at) => ({ ...scope, place: granted.places[at]! }));
    const { slotsUs, run } = granted;
    const slots = run === undefined ? slotsUs : [slotOfRun(run, 0)];
    const back = { bucket, asker, terms, generation: reply.generation, place: reply.place };
    const giving = [store.giveBack({ ...back, wish: { ...wish, scopes }, slotsUs: slots })];
    if (leases > 0) {
      giving.push(store.release({ bucket, asker, terms, scopes, leases: [lease] }));
    }
    await Promise.allSettled(giving);
  }

  /** Redis does not know which calls passed without it: the bucket has to start as if a burst had just left. */
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
    const areForeign = hasForeignPlaces && !request.isTry;
    const wishes = areForeign ? request.wishes.map(placeless) : request.wishes;
    const place = areForeign ? NO_PLACE : request.place;
    const known = { ...request, wishes, place };
    const reply = await (isReturning ? drawReturning(known) : sendDraw(known));
    if (reply.newText === undefined) isReturning = false;
    if (areForeign) hasForeignPlaces = false;
    running.add(request, reply, undefined);
    return reply;
  }

  async function drawFromStandIn(request: DrawRequest, current: Outage): Promise<Drawn> {
    const reply = await current.standIn.draw(request);
    running.add(request, reply, current.standIn);
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

  /** What of it Redis has to book: of a slot of the outage it never booked the estimate, and has nothing to give back. */
  function ofRedis(request: SettleRequest): SettleRequest | undefined {
    const { slotUs, deltas } = request;
    if (slotUs < lastOutage.sinceUs || slotUs > lastOutage.untilUs) return request;
    const more = deltas.map((delta) => Math.max(0, delta));
    return more.some((delta) => delta > 0) ? { ...request, deltas: more } : undefined;
  }

  async function settle(request: SettleRequest): Promise<void> {
    if (outage !== undefined && request.slotUs >= outage.sinceUs) {
      return outage.standIn.settle(request);
    }
    const settling = ofRedis(request);
    if (settling !== undefined) await store.settle(settling);
  }

  /** Asks each store that gave some of these leases about its own. */
  async function askGivers<T>(
    request: LeasesRequest,
    ask: (giver: Pick<Store, "renew" | "release">, own: LeasesRequest) => Promise<T>,
  ): Promise<T[]> {
    const byGiver = running.byGiver(request.leases);
    return Promise.all(
      [...byGiver].map(([giver, leases]) => ask(giver ?? store, { ...request, leases })),
    );
  }

  return {
    ...store,
    draw,
    settle,
    noteSlot: (note, settling) => store.noteSlot(note, settling && ofRedis(settling)),
    async giveBack(request) {
      await (outage?.standIn ?? store).giveBack(request);
    },
    async renew(request) {
      return (await askGivers(request, (giver, own) => giver.renew(own))).flat();
    },
    async release(request) {
      const released = askGivers(request, (giver, own) => giver.release(own));
      running.remove(request.leases);
      await released;
    },
    async steer(request) {
      const { change } = request;
      // A change by hand is for all replicas, and fails; what a downstream asks for is done here.
      const isByHand = change.do === "configure" || change.do === "pause";
      return (isByHand ? store : (outage?.standIn ?? store)).steer(request);
    },
  };
}

/** How many replicas draw from a bucket: the most that replies named in the last 30 to 60 seconds. */
export interface ReplicasSeen {
  /** 0 until a reply has come. */
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

/** The same wish of one that waits for none of its keys yet. */
function placeless(wish: Wish): Wish {
  return { ...wish, scopes: wish.scopes.map((scope) => ({ ...scope, place: NO_PLACE })) };
}

/** The leases of calls that run here, each with the stand-in that gave it; undefined is Redis. */
interface RunningLeases {
  /** Takes in what a reply to a draw has granted. */
  add(request: DrawRequest, reply: Drawn, giver: StandIn | undefined): void;
  remove(leases: readonly number[]): void;
  /** How many of the leases are of Redis: all, or those of one key. */
  countOfRedis(key?: string): number;
  /** Leases that are not known count as those of Redis. */
  byGiver(leases: readonly number[]): ReadonlyMap<StandIn | undefined, readonly number[]>;
}

function createRunningLeases(): RunningLeases {
  const running = new Map<number, { giver: StandIn | undefined; scopes: Wish["scopes"] }>();

  return {
    add({ leases, lease: first, wishes, terms }, { granted }, giver) {
      if (leases === 0) return;
      let lease = first;
      for (const [index, { slotsUs }] of granted.entries()) {
        const { scopes, costs } = wishes[index]!;
        const limits = limitsOfCall(terms.limits, scopes);
        if (!limits.some(isLeased)) continue;
        const areHeld = limits.some((limit, at) => isLeased(limit) && costs[at]! > 0);
        for (const _slot of slotsUs) {
          if (areHeld) running.set(lease, { giver, scopes });
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
        if (each.giver === undefined && isOfKey) count += 1;
      }
      return count;
    },
    byGiver(leases) {
      const found = new Map<StandIn | undefined, number[]>();
      for (const lease of leases) {
        const giver = running.get(lease)?.giver;
        found.set(giver, [...(found.get(giver) ?? []), lease]);
      }
      return found;
    },
  };
}

import { DREW_ELSEWHERE_US } from "../../core/draw/bucket-state.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import { isLeased } from "../../core/limits/registry.ts";
import {
  NO_PLACE,
  type Drawn,
  type DrawRequest,
  type LeasesRequest,
  type SettleRequest,
  type Store,
} from "../../core/store.ts";
import { createBucketClock } from "../slot/bucket-clock.ts";
import type { Known, StandIn } from "./stand-ins.ts";

export interface OutageStoreOptions {
  readonly store: Store;
  readonly bucket: string;
  /** What serves from now on; undefined if nothing can: the call then fails as it would have. */
  readonly standIn: (known: Known) => StandIn | undefined;
}

interface Outage {
  readonly standIn: StandIn;
  readonly sinceUs: number;
}

/**
 * The store of one bucket whose calls go on without Redis: when a draw finds that it does not answer,
 * a stand-in serves until Redis does, which is found out beside the draws. What was drawn from one of the
 * two is settled, renewed and given back there.
 */
export function createOutageStore({ store, bucket, standIn }: OutageStoreOptions): Store {
  const clock = createBucketClock();
  const replicas = createReplicasSeen();
  const running = createRunningLeases<StandIn>();
  let offsetMs: number | undefined;
  let outage: Outage | undefined;
  /** When the last outage was, on the bucket's clock. */
  let past = { sinceUs: 0, untilUs: 0 };
  let isReturning = false;
  let hasStrangePlaces = false;
  let isLooking = false;

  function begin(): Outage | undefined {
    const own = offsetMs;
    const nowUs =
      own === undefined ? undefined : () => Math.floor((performance.now() - own) * 1_000);
    const runningOf = (key?: string): number => running.countIn(undefined, key);
    const serving = standIn({ nowUs, replicas: replicas.most, runningOf });
    return serving && { standIn: serving, sinceUs: serving.nowUs() };
  }

  function end(current: Outage): void {
    if (outage !== current) return;
    const {
      standIn: { nowUs },
      sinceUs,
    } = current;
    past = { sinceUs, untilUs: nowUs() };
    outage = undefined;
    isReturning = true;
    hasStrangePlaces = true;
  }

  /** Beside the draws, so that no call waits for a Redis that may not answer. */
  function lookForRedis({ terms }: DrawRequest, current: Outage): void {
    if (isLooking) return;
    isLooking = true;
    store
      .peek({ bucket, terms, key: undefined, keyLimits: [] })
      .then(
        () => end(current),
        () => undefined,
      )
      .finally(() => (isLooking = false));
  }

  async function drawFromRedis(request: DrawRequest): Promise<Drawn> {
    const areStrange = hasStrangePlaces && !request.isTry;
    const wishes = areStrange
      ? request.wishes.map((wish) => ({ ...wish, place: NO_PLACE }))
      : request.wishes;
    // Redis knows nothing of what passed without it: the bucket is to start as if a burst had just left.
    const drewUs = isReturning ? DREW_ELSEWHERE_US : request.drewUs;
    const startsFull = isReturning ? false : request.startsFull;
    const place = areStrange ? NO_PLACE : request.place;
    const reply = await store.draw({ ...request, wishes, place, drewUs, startsFull });
    offsetMs = clock.sample(performance.now(), reply.nowUs);
    replicas.see(reply.alive);
    if (reply.newText === undefined) isReturning = false;
    if (areStrange) hasStrangePlaces = false;
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
    lookForRedis(request, current);
    return drawFromStandIn(request, current);
  }

  async function settle(request: SettleRequest): Promise<void> {
    const { slotUs, deltas } = request;
    if (outage !== undefined && slotUs >= outage.sinceUs) return outage.standIn.settle(request);
    if (slotUs < past.sinceUs || slotUs > past.untilUs) return store.settle(request);
    // Redis never booked it: there is nothing to take back.
    const more = deltas.map((delta) => Math.max(0, delta));
    if (more.some((delta) => delta > 0)) await store.settle({ ...request, deltas: more });
  }

  /** To each of those that gave these leases, its own. */
  async function each<T>(
    request: LeasesRequest,
    ask: (holder: Pick<Store, "renew" | "release">, own: LeasesRequest) => Promise<T>,
  ): Promise<T[]> {
    const byHolder = running.byHolder(request.leases);
    return Promise.all(
      [...byHolder].map(([holder, leases]) => ask(holder ?? store, { ...request, leases })),
    );
  }

  return {
    ...store,
    draw,
    settle,
    async giveBack(request) {
      await (outage?.standIn ?? store).giveBack(request);
    },
    async renew(request) {
      return (await each(request, (holder, own) => holder.renew(own))).flat();
    },
    async release(request) {
      const released = each(request, (holder, own) => holder.release(own));
      running.remove(request.leases);
      await released;
    },
    async steer(request) {
      const { change } = request;
      // What is done by hand is meant for all replicas, and fails; what a downstream says is heeded here.
      const isByHand = change.do === "configure" || change.do === "pause";
      await (isByHand ? store : (outage?.standIn ?? store)).steer(request);
    },
  };
}

/** How many replicas draw from a bucket: the most that were seen in the last minute of draws. */
export interface ReplicasSeen {
  /** 0: none was ever seen. */
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

/** The leases of calls that run here, by who gave them; undefined stands for Redis. */
interface RunningLeases<Holder> {
  /** Takes in what a reply to a draw has granted. */
  add(request: DrawRequest, reply: Drawn, holder: Holder | undefined): void;
  remove(leases: readonly number[]): void;
  /** How many of one holder: all, or those of a key. */
  countIn(holder: Holder | undefined, key?: string): number;
  /** Leases that are not known are taken to be Redis'. */
  byHolder(leases: readonly number[]): ReadonlyMap<Holder | undefined, readonly number[]>;
}

function createRunningLeases<Holder>(): RunningLeases<Holder> {
  const running = new Map<number, { holder: Holder | undefined; key: string | undefined }>();

  return {
    add({ leases, lease: first, wishes, terms }, { granted }, holder) {
      if (leases === 0) return;
      let lease = first;
      for (const [index, { slotsUs }] of granted.entries()) {
        const { key, keyLimits } = wishes[index]!;
        if (![...terms.limits, ...keyLimits].some(isLeased)) continue;
        for (const _slot of slotsUs) running.set(lease++, { holder, key });
      }
    },
    remove(leases) {
      for (const lease of leases) running.delete(lease);
    },
    countIn(holder, key) {
      let count = 0;
      for (const each of running.values()) {
        if (each.holder === holder && (key === undefined || each.key === key)) count += 1;
      }
      return count;
    },
    byHolder(leases) {
      const found = new Map<Holder | undefined, number[]>();
      for (const lease of leases) {
        const holder = running.get(lease)?.holder;
        found.set(holder, [...(found.get(holder) ?? []), lease]);
      }
      return found;
    },
  };
}

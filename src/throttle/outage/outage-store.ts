import { DREW_ELSEWHERE_US } from "../../core/draw/bucket-state.ts";
import { StoreUnavailableError } from "../../core/errors.ts";
import {
  NO_PLACE,
  type Drawn,
  type DrawRequest,
  type LeasesRequest,
  type SettleRequest,
  type Store,
} from "../../core/store.ts";
import { createBucketClock } from "../bucket-clock.ts";
import { createReplicasSeen } from "./replicas-seen.ts";
import { createRunningLeases } from "./running-leases.ts";
import type { Known, StandIn } from "./stand-in.ts";

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

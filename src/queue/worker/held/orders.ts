/**
 * What a worker is told of the jobs that it has: that the queue or keys are paused, and which of them were cancelled. Each answer to
 * its fetcher says whether there is any news; while it has jobs and fetches none, it looks by itself. So no message can get
 * lost, and a job begins only by news of the last second: a process that stood still, or was cut off, asks first.
 */
import { headsOfText } from "../../../core/key-path.ts";
import type { HeldJob, LaneStore, OrdersSeen } from "../../../core/stores/queue/store.ts";
import { pauseFor } from "../../../throttle/waiting/wait.ts";
import type { OwnedJobContext, Running } from "../context.ts";

export interface HeldOrders {
  /** Notes what an answer said that was asked for then, on `performance.now()`. */
  hear(seen: OrdersSeen, askedAtMs: number): void;
  /** Called for each job that was fetched. */
  add(context: OwnedJobContext): void;
  /** Whether a job may begin by what was heard. */
  readonly areFresh: boolean;
  /** Whether the queue is paused, as far as was heard. */
  readonly isPaused: boolean;
  /** Resolves once they are fresh, or the job's wait for that was ended. */
  untilFresh(context: OwnedJobContext): Promise<void>;
  close(): void;
}

/** How often a worker that has jobs hears what holds for them, at least; and for how long it may begin jobs by that. */
const LOOK_MS = 350;
const FRESH_MS = 1_000;
const RECHECK_MS = 25;

export function createOrders({
  queue,
  workerId,
  lanes,
  running,
  onMissed,
}: {
  readonly queue: string;
  /** The tokens of this worker's locks begin with it. */
  readonly workerId: string;
  readonly lanes: Pick<LaneStore, "orders">;
  readonly running: Pick<Running, "all" | "count">;
  /** Told of a job that was cancelled while this worker had it, and that has gone on since. */
  readonly onMissed: (id: string) => void;
}): HeldOrders {
  let isPaused = false;
  /** The locks of this worker's jobs that it knows to be cancelled. */
  let known = new Set<string>();
  /** Until when keys are paused, on `performance.now()`. */
  let pausedKeys: ReadonlyMap<string, number> = new Map();
  let version = "";
  let heardAtMs = -Infinity;
  let asking: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let isClosed = false;

  function mayNot({ key }: OwnedJobContext): boolean {
    if (isPaused) return true;
    if (key === undefined || pausedKeys.size === 0) return false;
    return headsOfText(key).some((head) => (pausedKeys.get(head) ?? 0) > performance.now());
  }

  function hear(seen: OrdersSeen, askedAtMs: number): void {
    heardAtMs = Math.max(heardAtMs, askedAtMs);
    isPaused = seen.isPaused;
    if (isPaused) for (const context of running.all()) context.recall();
    if (seen.version !== version) void ask();
  }

  /** Never rejects: without an answer, nothing begins here. */
  function ask(): Promise<void> {
    asking ??= askNow()
      .catch(() => undefined)
      .finally(() => {
        asking = undefined;
      });
    return asking;
  }

  async function askNow(): Promise<void> {
    const askedAtMs = performance.now();
    const orders = await lanes.orders(queue, `${workerId}:`);
    version = orders.version;
    const nowMs = performance.now();
    pausedKeys = new Map(orders.pausedKeys.map(({ key, forMs }) => [key!, nowMs + forMs]));
    hear(orders, askedAtMs);
    if (pausedKeys.size > 0)
      for (const context of running.all()) if (mayNot(context)) context.recall();
    if (orders.cancelled.length > 0) cancel(orders.cancelled);
  }

  function cancel(locks: readonly HeldJob[]): void {
    const held = new Map<string, OwnedJobContext>();
    for (const context of running.all()) held.set(lockOf(context.token, context.jobId), context);
    for (const { id, token } of locks) {
      const lock = lockOf(token, id);
      const context = held.get(lock);
      if (context !== undefined) context.cancel();
      else if (!known.has(lock)) onMissed(id);
    }
    known = new Set(locks.map(({ id, token }) => lockOf(token, id)));
  }

  function lookIn(ms: number): void {
    if (timer === undefined && !isClosed) timer = setTimeout(look, ms).unref();
  }

  function look(): void {
    timer = undefined;
    if (running.count === 0) return;
    const leftMs = heardAtMs + LOOK_MS - performance.now();
    if (leftMs > 0) return lookIn(leftMs);
    void ask().then(() => lookIn(LOOK_MS));
  }

  function areFresh(): boolean {
    return performance.now() < heardAtMs + FRESH_MS;
  }

  return {
    hear,
    add(context) {
      if (mayNot(context)) context.recall();
      lookIn(LOOK_MS);
    },
    get isPaused() {
      return isPaused;
    },
    get areFresh() {
      return areFresh();
    },
    async untilFresh(context) {
      while (!isClosed && !context.isLeaving && !areFresh()) {
        void ask();
        await pauseFor(RECHECK_MS, context);
      }
    },
    close() {
      isClosed = true;
      clearTimeout(timer);
    },
  };
}

function lockOf(token: string, id: string): string {
  return `${token} ${id}`;
}

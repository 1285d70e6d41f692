import type { ProcessLimiter } from "../../../bench/limiters/gradient2.ts";
import type { Limit } from "../../../src/core/limits/rule.ts";
import type { ClosedWindow, Store } from "../../../src/core/store.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** A downstream that runs `capacity` calls at once. The others wait in its queue, or are refused. */
export interface TestDownstream {
  capacity: number;
  /** How many times longer each call takes than usual. */
  slowness: number;
  readonly ended: number;
  call(): Promise<Response>;
}

/** How long the downstream works on a call. */
const [LEAST_MS, MOST_MS] = [160, 240];

export function createDownstream(
  time: VirtualTime,
  {
    capacity,
    random,
    refuses = false,
  }: { capacity: number; random: () => number; refuses?: boolean | undefined },
): TestDownstream {
  const queue: (() => void)[] = [];
  let running = 0;
  let ended = 0;
  const downstream = {
    capacity,
    slowness: 1,
    get ended() {
      return ended;
    },
    async call() {
      if (running >= downstream.capacity) {
        if (refuses) {
          await time.sleep(20);
          return new Response(null, { status: 529 });
        }
        await new Promise<void>((resolve) => queue.push(resolve));
      } else running += 1;
      await time.sleep((LEAST_MS + random() * (MOST_MS - LEAST_MS)) * downstream.slowness);
      ended += 1;
      if (running <= downstream.capacity && queue.length > 0) queue.shift()!();
      else running -= 1;
      while (running < downstream.capacity && queue.length > 0) {
        running += 1;
        queue.shift()!();
      }
      return new Response();
    },
  };
  return downstream;
}

/** A change of the downstream, so many ms after the start. */
interface DownstreamStep {
  readonly atMs: number;
  readonly capacity?: number;
  readonly slowness?: number;
}

export interface AdaptiveRun {
  /** The computed limit at each multiple of 100 ms: the shared one, or the sum over the processes. */
  readonly limits: readonly number[];
  /** The calls that had ended by then. */
  readonly ended: readonly number[];
  readonly windows: readonly ClosedWindow[];
  readonly errors: readonly unknown[];
}

const NOBODY_LOGS = { warn: () => {}, error: () => {} };
const SAMPLE_MS = 100;

export interface RunOptions {
  readonly store: Store;
  readonly limit: Limit;
  readonly limiterOf?: () => ProcessLimiter;
  readonly replicas: number;
  readonly downstream: TestDownstream;
  readonly steps?: readonly DownstreamStep[];
  readonly forMs: number;
  readonly callers?: number;
}

/** Lets replicas with an endless backlog call one downstream under a shared limit, or under one limiter for each. */
export async function runAdaptive(
  time: VirtualTime,
  { store, limit, limiterOf, replicas, downstream, steps = [], forMs, callers = 64 }: RunOptions,
): Promise<AdaptiveRun> {
  const windows: ClosedWindow[] = [];
  const errors: unknown[] = [];
  const far: Store = {
    ...store,
    async draw(request) {
      const sentAtMs = time.now();
      await time.sleep(1);
      const drawn = await store.draw(request);
      return { ...drawn, sentAtMs };
    },
    async release(request) {
      await time.sleep(1);
      const closed = await store.release(request);
      windows.push(...closed);
      return closed;
    },
  };
  const buckets = Array.from({ length: replicas }, () =>
    createBuckets({
      store: far,
      insight: createMemoryInsight(),
      logger: NOBODY_LOGS,
      isRemote: false,
      isCluster: false,
    }).open("adaptive", "api", { limits: [limit], feedback: false }),
  );
  const limiters = limiterOf === undefined ? undefined : buckets.map(() => limiterOf());
  const startMs = time.now();
  const endMs = startMs + forMs;
  const limits: number[] = [];
  const ended: number[] = [];

  async function call(replica: number): Promise<void> {
    while (time.now() < endMs) {
      try {
        await (limiters === undefined
          ? buckets[replica]!.run(() => downstream.call())
          : limiters[replica]!.run(() => downstream.call()));
      } catch (error) {
        if (time.now() < endMs) errors.push(error);
        return;
      }
    }
  }

  async function change(): Promise<void> {
    for (const { atMs, capacity, slowness } of steps) {
      await time.sleep(startMs + atMs - time.now());
      downstream.capacity = capacity ?? downstream.capacity;
      downstream.slowness = slowness ?? downstream.slowness;
    }
  }

  async function sample(): Promise<void> {
    while (time.now() < endMs) {
      await time.sleep(SAMPLE_MS);
      const ofProcesses = limiters?.reduce((sum, each) => sum + each.limit, 0);
      limits.push(ofProcesses ?? windows.at(-1)?.value ?? limit.adaptive?.initial ?? limit.count);
      ended.push(downstream.ended);
    }
  }

  const calling = Array.from({ length: callers }, (_, index) => call(index % replicas));
  void change();
  void sample();
  await time.runUntil(endMs);
  const closing = Promise.all(buckets.map((each) => each.close()));
  await time.runUntil(endMs + 60_000);
  await Promise.all([...calling, closing]);
  return { limits, ended, windows, errors };
}

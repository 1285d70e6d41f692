import { createMemoryInsight } from "../../../src/stores/memory/memory-insight.ts";
import { createBuckets } from "../../../src/sluice/buckets.ts";
import type { Store } from "../../../src/core/store.ts";
import type { Priority } from "../../../src/core/input/options.ts";
import type { PoolMember } from "../../../src/throttle/bucket/pool.ts";
import { randomOf } from "../mixes/mix.ts";
import type { VirtualTime } from "../mixes/virtual-time.ts";

/** Replicas that call through one pool as often as they can. */
export interface PoolRun {
  /** The limits of each member. */
  readonly members: Readonly<Record<string, PoolMember>>;
  /** Further options of the pool. */
  readonly options?: object;
  readonly replicas: number;
  /** How many callers of each replica always wait. */
  readonly callers: number;
  /** What a caller asks for. */
  readonly callOf?: (caller: number) => {
    readonly key?: string;
    readonly cost?: number | Readonly<Record<string, number>>;
    readonly priority?: Priority;
    /** The only member that takes the call. Defaults to each. */
    readonly member?: string;
  };
  /** Receives each call at a member: it may throw, or take some time. */
  readonly receive?: (call: ReceivedCall) => Promise<void> | void;
  readonly forMs: number;
}

/** A call that a member has received. `atMs` is the time since the run began. */
export interface ReceivedCall {
  readonly member: string;
  readonly atMs: number;
  /** When the call began to wait. */
  readonly sinceMs: number;
  readonly replica: number;
  readonly caller: number;
}

export interface PoolRan {
  readonly calls: readonly ReceivedCall[];
  /** The errors of calls. A call that the end of the run cuts short is none. */
  readonly errors: readonly unknown[];
  readonly draws: number;
}

const NOBODY_LOGS = { warn: () => {}, error: () => {} };

/** Runs replicas over one store that is a fraction of a ms away, in virtual time. */
export async function runPool(
  run: PoolRun,
  { store, time, seed = 1 }: { store: Store; time: VirtualTime; seed?: number },
): Promise<PoolRan> {
  const random = randomOf(seed);
  const calls: ReceivedCall[] = [];
  const errors: unknown[] = [];
  let draws = 0;
  const far: Store = {
    ...store,
    async draw(request) {
      const sentAtMs = time.now();
      draws += 1;
      await time.sleep(0.15 + random() * 0.3);
      const drawn = await store.draw(request);
      await time.sleep(0.15 + random() * 0.3);
      return { ...drawn, sentAtMs };
    },
  };
  const pools = Array.from({ length: run.replicas }, () => {
    const buckets = createBuckets({
      store: far,
      insight: createMemoryInsight(),
      logger: NOBODY_LOGS,
      isRemote: false,
      isCluster: false,
    });
    const members = Object.fromEntries(
      Object.entries(run.members).map(([name, member]) => [name, { value: name, ...member }]),
    );
    const pool = buckets.openPool("test", "pool", { members, ...run.options });
    return { pool, close: () => buckets.close() };
  });
  const startMs = time.now();
  const endMs = startMs + run.forMs;

  async function callOn(replica: number, caller: number): Promise<void> {
    const { pool } = pools[replica]!;
    const { member: only, ...options } = run.callOf?.(caller) ?? {};
    const calledAt = only === undefined ? pool : pool.member(only);
    while (time.now() < endMs) {
      const sinceMs = time.now() - startMs;
      const call = calledAt.throttled(async (value) => {
        const member = String(value);
        const received = { member, atMs: time.now() - startMs, sinceMs, replica, caller };
        calls.push(received);
        await run.receive?.(received);
      }, options);
      try {
        await call();
      } catch (error) {
        if (time.now() < endMs) errors.push(error);
        await time.sleep(0.5);
      }
    }
  }

  const calling = Promise.all(
    pools.flatMap((_, replica) =>
      Array.from({ length: run.callers }, (_each, caller) => callOn(replica, caller)),
    ),
  );
  await time.runUntil(endMs);
  const closing = Promise.all(pools.map(({ close }) => close()));
  await time.runUntil(endMs + 60_000);
  await Promise.all([calling, closing]);
  return { calls, errors, draws };
}

/**
 * Reads the state of many buckets and queues for operators. Concurrent requests share one snapshot.
 */
import type { Overview } from "../insight/overview.ts";
import type { JobExplanation } from "../queue/forecast/explain.ts";
import type { QueueStatus } from "../queue/forecast/status.ts";
import type { Sluice } from "../sluice/create-sluice.ts";
import { briefOf, type BucketBrief, type History } from "../throttle/bucket/facts/status.ts";

interface Snapshot extends Omit<Overview<BucketBrief>, "next"> {
  /** The time of the snapshot, in ms since 1970 on the clock of this process. */
  readonly atMs: number;
}

/** The due jobs that have not started, by queue. A queue that cannot be read is missing. */
type QueuedJobs = ReadonlyMap<string, number>;

export interface Facts {
  /** Returns all buckets, and the queues, workers and processes that `overview()` lists. */
  look(): Promise<Snapshot>;
  /** Counts the queued jobs. While Redis is slow, returns the last counts. */
  queued(): Promise<QueuedJobs>;
  /** Drops the last snapshot. Call this after a change. */
  forget(): void;
  /** Returns the calls per second of the last ten minutes for each bucket, the oldest first. */
  recent(page: readonly BucketBrief[]): Promise<Record<string, number[]>>;
  /** Reads the rows of a page again if they come from an old snapshot. */
  refreshed(page: readonly BucketBrief[], atMs: number): Promise<readonly BucketBrief[]>;
  /** Returns the names of the queues whose jobs draw from a bucket. */
  queuesOf(bucket: string): Promise<readonly string[]>;
}

export const PAGE = 1_000;
const LEAST_AGE_MS = 1_000;
/**
 * How long a snapshot is kept, as a multiple of the time that it took. Snapshots thus take at most
 * a tenth of the time.
 */
const AGE_BY_DURATION = 10;
/**
 * If a snapshot takes longer than this, callers get the last snapshot while the next one is read.
 */
const QUICK_MS = 500;
/** How old the rows of a page may be. The sort order of many buckets may be older. */
const FRESH_MS = 3_000;
const RECENT_MS = 600_000;
/** The length of one step in the history. */
const STEP_MS = 10_000;

export function createFacts(sluice: Sluice): Facts {
  const looks = keep(lookAnew);
  const counts = keep(async () => countQueued(sluice, (await looks.read()).queues));
  const rates = new Map<string, { readonly read: Promise<number[]>; readonly untilMs: number }>();

  async function lookAnew(): Promise<Snapshot> {
    const all = await everyPage((after) => sluice.overview({ limit: PAGE, after, brief: true }));
    return { ...all, atMs: Date.now() };
  }

  async function readRates(name: string): Promise<number[]> {
    const nowMs = Date.now();
    const bucket = await sluice.find(name);
    const history = await bucket?.history({ sinceMs: nowMs - RECENT_MS - STEP_MS });
    return history === undefined ? [] : ratesOf(history, nowMs);
  }

  /** Rates are kept for half a step, because they change once per step. */
  function ratesNamed(name: string): Promise<number[]> {
    const found = rates.get(name);
    if (found !== undefined && found.untilMs > performance.now()) return found.read;
    // Return no rates on failure, because other parts of the page show that a server is
    // unreachable.
    const read = readRates(name).catch(() => []);
    if (rates.size >= 1_000) rates.clear();
    rates.set(name, { read, untilMs: performance.now() + STEP_MS / 2 });
    return read;
  }

  async function anew(status: BucketBrief): Promise<BucketBrief> {
    try {
      const found = await (await sluice.find(status.name))?.status();
      return found === undefined ? status : briefOf(found);
    } catch {
      // The server of the bucket is unreachable, so show the last known row. The totals name that
      // server.
      return status;
    }
  }

  return {
    look: looks.read,
    queued: counts.read,
    forget: looks.forget,
    async recent(page) {
      const all = page.map(async ({ name }) => [name, await ratesNamed(name)] as const);
      return Object.fromEntries(await Promise.all(all));
    },
    async refreshed(page, atMs) {
      return Date.now() - atMs > FRESH_MS ? Promise.all(page.map(anew)) : page;
    },
    async queuesOf(bucket) {
      const { queues } = await looks.read();
      return queues.flatMap((queue) => (queue.bucket === bucket ? [queue.name] : []));
    },
  };
}

/** Reads all pages of an overview. */
export async function everyPage<Bucket extends BucketBrief>(
  read: (after: string | undefined) => Promise<Overview<Bucket>>,
): Promise<Omit<Overview<Bucket>, "next">> {
  const { next, ...first } = await read(undefined);
  const buckets = [...first.buckets];
  const unreachable = [...first.unreachable];
  for (let after = next; after !== undefined;) {
    const page = await read(after);
    buckets.push(...page.buckets);
    unreachable.push(...page.unreachable);
    after = page.next;
  }
  return { ...first, buckets, unreachable };
}

/**
 * Shares one read among all callers. Keeps a result for ten times as long as its read took. If a
 * read is slow, callers get the last result until the read ends.
 */
function keep<T>(readAnew: () => Promise<T>): {
  readonly read: () => Promise<T>;
  readonly forget: () => void;
} {
  let reading: Promise<T> | undefined;
  let last: { readonly result: T; goodUntilMs: number } | undefined;

  async function readNow(): Promise<T> {
    const beganMs = performance.now();
    const result = await readAnew();
    const nowMs = performance.now();
    last = {
      result,
      goodUntilMs: nowMs + Math.max(LEAST_AGE_MS, (nowMs - beganMs) * AGE_BY_DURATION),
    };
    return result;
  }

  return {
    async read() {
      if (last !== undefined && performance.now() < last.goodUntilMs) return last.result;
      const next = (reading ??= readNow().finally(() => (reading = undefined)));
      if (last === undefined) return next;
      const { result } = last;
      const whenSlow = new Promise<T>((resolve) => {
        setTimeout(() => resolve(result), QUICK_MS).unref();
      });
      // If this read fails late, the next caller gets the error.
      next.catch(() => (last = undefined));
      return Promise.race([next, whenSlow]);
    },
    forget() {
      if (last !== undefined) last.goodUntilMs = -Infinity;
    },
  };
}

async function countQueued(sluice: Sluice, queues: Snapshot["queues"]): Promise<QueuedJobs> {
  const counted = queues.map(async ({ name }) => {
    // Count the other queues even if one queue cannot be read.
    const counts = await sluice
      .findQueue(name)
      .then((queue) => queue?.counts())
      .catch(() => undefined);
    return counts === undefined ? [] : [[name, counts.waiting] as const];
  });
  return new Map((await Promise.all(counted)).flat());
}

/** Returns the numbers of queued jobs by bucket, in the queues that the caller may see. */
export function queuedByBucket(
  { queues }: Pick<Snapshot, "queues">,
  queuedJobs: QueuedJobs,
  mayQueue: (name: string) => boolean,
): ReadonlyMap<string, number> {
  const sums = new Map<string, number>();
  for (const { name, bucket } of queues) {
    const jobs = mayQueue(name) ? queuedJobs.get(name) : undefined;
    if (jobs !== undefined) sums.set(bucket, (sums.get(bucket) ?? 0) + jobs);
  }
  return sums;
}

/** Returns the rates without the current step, which is incomplete. */
function ratesOf({ stepMs, points }: History, nowMs: number): number[] {
  const steps = RECENT_MS / stepMs;
  const endMs = Math.floor(nowMs / stepMs) * stepMs;
  const byStep = new Map(points.map(({ atMs, started }) => [atMs, started]));
  return Array.from({ length: steps }, (_, index) => {
    const started = byStep.get(endMs - (steps - index) * stepMs) ?? 0;
    return (started * 1_000) / stepMs;
  });
}

/** The totals of all buckets. */
export interface Totals extends Pick<Snapshot, "atMs" | "replicas" | "unreachable"> {
  readonly buckets: number;
  readonly waiting: number;
  readonly oldestMs: number;
  readonly actualPerSecond: number;
  readonly capPerSecond: number;
  readonly cooling: number;
  readonly paused: number;
  readonly away: number;
  readonly overrides: number;
  readonly queuedJobs: number;
}

export function totalsOf(
  { atMs, replicas, unreachable }: Pick<Snapshot, "atMs" | "replicas" | "unreachable">,
  buckets: readonly BucketBrief[],
  queuedJobs: ReadonlyMap<string, number>,
): Totals {
  const sum = (count: (status: BucketBrief) => number): number =>
    buckets.reduce((total, status) => total + count(status), 0);
  // Skip buckets without a cap, whose share is unknown.
  const capped = buckets.filter(({ capPerSecond }) => capPerSecond !== undefined);
  return {
    atMs,
    buckets: buckets.length,
    waiting: sum(({ waiting }) => waiting.total),
    oldestMs: buckets.reduce((most, { waiting }) => Math.max(most, waiting.oldestMs), 0),
    actualPerSecond: capped.reduce((total, status) => total + status.actualPerSecond, 0),
    capPerSecond: capped.reduce((total, status) => total + status.capPerSecond!, 0),
    cooling: sum(({ coolingForMs }) => Number(coolingForMs > 0)),
    paused: sum(({ pausedForMs }) => Number(pausedForMs > 0)),
    away: sum(({ unreachableForMs }) => Number(unreachableForMs > 0)),
    overrides: sum(({ source }) => Number(source === "override")),
    queuedJobs: [...queuedJobs.values()].reduce((total, jobs) => total + jobs, 0),
    replicas,
    unreachable,
  };
}

type Order = "name" | "waiting" | "oldest" | "actual" | "share";

/** The figures by which buckets can be sorted. Buckets with equal figures are sorted by name. */
export const ORDERS: Readonly<Record<Order, (status: BucketBrief) => number>> = {
  name: () => 0,
  waiting: ({ waiting }: BucketBrief) => waiting.total,
  oldest: ({ waiting }: BucketBrief) => waiting.oldestMs,
  actual: ({ actualPerSecond }: BucketBrief) => actualPerSecond,
  share: ({ actualPerSecond, capPerSecond }: BucketBrief) =>
    capPerSecond === undefined ? 0 : actualPerSecond / capPerSecond,
};

async function statusesOf(
  sluice: Sluice,
  queues: readonly string[],
): Promise<readonly QueueStatus[]> {
  const found = await Promise.all(
    queues.map(async (name) => (await sluice.findQueue(name))?.status()),
  );
  return found.filter((status) => status !== undefined);
}

/** The most queues of a bucket that are read for its keys, and the most keys that are shown. */
const [MOST_QUEUES_OF_KEYS, MOST_KEYS] = [10, 20];

/** Returns the keys with the most pending jobs over several queues. */
export async function busiestKeys(
  sluice: Sluice,
  queues: readonly string[],
): Promise<Pick<QueueStatus, "lanes" | "totalLanes" | "lanesInAll">> {
  const found = await statusesOf(sluice, queues.slice(0, MOST_QUEUES_OF_KEYS));
  const lanes = found.flatMap((status) => status.lanes);
  const totalLanes = found.reduce((sum, status) => sum + status.totalLanes, 0);
  return {
    lanes: lanes.toSorted((one, other) => other.jobs - one.jobs).slice(0, MOST_KEYS),
    totalLanes,
    lanesInAll: totalLanes,
  };
}

/** The most queues that one result covers, because each queue needs a forecast. */
export const MOST_FORECASTS = 20;

/** The due jobs of a queue that wait for the queue's bucket. */
export interface WaitingJobs {
  readonly queue: string;
  readonly waiting: number;
  /** The explanation of what the oldest job waits for. */
  readonly why: JobExplanation | undefined;
}

/** Returns the queues whose jobs wait for a bucket, the queue with the most jobs first. */
export async function waitingJobs(
  sluice: Sluice,
  queues: readonly string[],
): Promise<readonly WaitingJobs[]> {
  const found = await statusesOf(sluice, queues.slice(0, MOST_FORECASTS));
  return found
    .map(({ name, jobs, oldest }) => ({ queue: name, waiting: jobs.waiting, why: oldest?.why }))
    .filter(({ waiting }) => waiting > 0)
    .toSorted((one, other) => other.waiting - one.waiting);
}

import * as z from "zod";
import { reasonOf } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type { InsightStore, QueueFacts, WorkerFacts } from "../core/stores/insight/store.ts";
import { describeSteering, type QueueChange } from "../core/stores/insight/steering.ts";
import { describeChange, type BucketChange } from "../throttle/bucket/facts/changes.ts";
import type { BucketBrief, BucketStatus } from "../throttle/bucket/facts/status.ts";
import type { Statuses } from "./statuses.ts";

export interface OverviewOptions {
  /** The `next` of the page before. Defaults to the first page. */
  readonly after?: string | undefined;
  /** The `nextQueue` of the page before. Defaults to the first page. */
  readonly afterQueue?: string | undefined;
  /** How many buckets at most, and how many queues, 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
  /**
   * Whether the `limits` of buckets are left out, of which each bucket costs Redis a request of its own: an overview of
   * many takes half of the time without. Defaults to false.
   */
  readonly brief?: boolean | undefined;
}

/** A process that uses buckets. */
export interface Replica {
  /** A name that no other process has. */
  readonly replica: string;
  readonly host: string;
  readonly pid: number;
  /** The version of Sluice that it runs. */
  readonly version: string;
  /** When it started, in ms since 1970, by its own clock. */
  readonly startedAtMs: number;
  /** When it last told something, by the clock of Redis: every thirty seconds at least. */
  readonly seenAtMs: number;
}

/** A queue that some process has open, with its workers. What waits in it is asked of the queue: `status()`. */
export interface ListedQueue {
  readonly name: string;
  /** The bucket through which its jobs leave. */
  readonly bucket: string;
  /** How many of `workers` are running, as `queue.status()` counts; how many jobs they may hold in all, and how many run. */
  readonly workers: number;
  readonly places: number;
  readonly running: number;
}

/** A worker as its process told it, up to a second ago. */
export interface ListedWorker {
  /** A name that no other worker has. */
  readonly worker: string;
  /** The process that it runs in, as in `replicas`. */
  readonly replica: string;
  readonly queue: string;
  /**
   * `"closing"` while it ends its handlers; `"silent"` if it has not been heard of for about 10 seconds, as one that was
   * killed.
   */
  readonly state: "running" | "closing" | "silent";
  /** Since when, in ms since 1970, by the clock of its process. */
  readonly sinceMs: number;
  /** How many jobs have their handlers running. */
  readonly running: number;
  /** How many more it holds, which wait for their slots. */
  readonly waiting: number;
  /** How many it may hold in all. */
  readonly concurrency: number;
  /** Whether the queue is paused, as it heard last. */
  readonly paused: boolean;
}

export interface Overview<Status extends BucketBrief = BucketStatus> {
  /** By name, those of one page. A bucket is listed for 30 days after its last call, and while a rules file names it. */
  readonly buckets: readonly Status[];
  /** What could not be looked at: a bucket of this page whose server does not answer, or a server (undefined). */
  readonly unreachable: readonly Unreachable[];
  /** What to give as `after` for the next page; undefined: this was the last one. */
  readonly next: string | undefined;
  /** By name, those of one page. A queue is listed for 30 days after the last process that had it open. */
  readonly queues: readonly ListedQueue[];
  /** What to give as `afterQueue` for the next page of queues; undefined: this was the last one. */
  readonly nextQueue: string | undefined;
  /** Those that were heard of in the last 90 seconds. */
  readonly replicas: readonly Replica[];
  /**
   * All workers of these. One that was killed is listed as `"silent"` until its process has not been heard of for 90
   * seconds.
   */
  readonly workers: readonly ListedWorker[];
}

/** What an overview lacks, and why. */
export interface Unreachable {
  readonly bucket: string | undefined;
  readonly reason: string;
}

export interface ChangesOptions {
  /** Only those of this bucket. Defaults to all, and all of queues. */
  readonly bucket?: string | undefined;
  /** Only those of this queue, or of the endpoints of the sender of this name. Never beside `bucket`. */
  readonly queue?: string | undefined;
  /** Only those before this one, by its id: for the next page. Defaults to the newest. */
  readonly before?: string | undefined;
  /** How many at most, 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
}

const LIMIT = { limit: wholeNumber(1, 1_000, "entries").optional() };
const OVERVIEW = z.strictObject({
  ...LIMIT,
  after: NAME.optional(),
  afterQueue: NAME.optional(),
  brief: z.boolean({ error: "give true or false" }).optional(),
});
const AN_ID = { error: 'give the id of a change, such as "1764166000000-0"' };
const CHANGES = z.strictObject({
  ...LIMIT,
  bucket: NAME.optional(),
  queue: NAME.optional(),
  before: z
    .string(AN_ID)
    .regex(/^\d{1,15}-\d{1,15}$/, AN_ID)
    .optional(),
});
const A_PAGE = 100;

export interface InsightParts {
  readonly insight: InsightStore;
  readonly statuses: Statuses;
}

export interface Insight {
  overview(options?: OverviewOptions): Promise<Overview<BucketBrief>>;
  changes(options?: ChangesOptions): Promise<readonly LoggedChange[]>;
}

/** A change of a bucket, or of a queue or an endpoint: the one has a `bucket`, the other a `queue`. */
export type LoggedChange = BucketChange | QueueChange;

export function createInsight({ insight, statuses }: InsightParts): Insight {
  return {
    async overview(given = {}) {
      const read = readOptions("overview()", OVERVIEW, given);
      const { after = "", afterQueue = "", limit = A_PAGE, brief = false } = read;
      const [{ names, errors }, { queues: found }, replicas, told] = await Promise.all([
        insight.bucketNames({ after, limit: limit + 1 }),
        insight.queues({ after: afterQueue, limit: limit + 1 }),
        insight.replicas(),
        insight.workers(),
      ]);
      const workers = await markSilent(told, insight);
      const page = names.slice(0, limit);
      const unreachable: Unreachable[] = errors.map((error) => ({
        bucket: undefined,
        reason: reasonOf(error),
      }));
      const looked = await (brief ? statuses.brief(page) : statuses.whole(page));
      const buckets = looked.flatMap((each) => {
        if ("status" in each) return each.status ?? [];
        unreachable.push({ bucket: each.name, reason: reasonOf(each.error) });
        return [];
      });
      const next = names.length > limit ? page.at(-1) : undefined;
      const queues = found.slice(0, limit).map((queue) => listed(queue, workers));
      const nextQueue = found.length > limit ? queues.at(-1)?.name : undefined;
      return { buckets, next, queues, nextQueue, workers, replicas, unreachable };
    },
    async changes(given = {}) {
      const where = "changes()";
      const { bucket, queue, before, limit = A_PAGE } = readOptions(where, CHANGES, given);
      if (bucket !== undefined && queue !== undefined) {
        const remedy = "give it, or bucket: a change is of one or of the other";
        throw new InvalidOptionError({ where, option: "queue", value: queue, remedy });
      }
      const [ofBuckets, ofQueues] = await Promise.all([
        queue === undefined ? insight.changes({ bucket, before, limit }) : [],
        bucket === undefined ? insight.steerings({ queue, before, limit }) : [],
      ]);
      const all = [...ofBuckets.map(describeChange), ...ofQueues.map(describeSteering)];
      return all.toSorted((a, b) => b.atMs - a.atMs || numberOf(b) - numberOf(a)).slice(0, limit);
    },
  };
}

/** The second part of an id, which tells changes of one ms apart. */
function numberOf({ id }: LoggedChange): number {
  return Number(id.split("-")[1]);
}

/** Marks the workers that `queue.status()` no longer counts, since they have not said lately that they are alive. */
async function markSilent(
  told: readonly WorkerFacts[],
  insight: InsightStore,
): Promise<readonly ListedWorker[]> {
  const live = new Set(await insight.liveWorkers([...new Set(told.map(({ queue }) => queue))]));
  return told.map((worker) =>
    live.has(worker.worker) || worker.state === "closing" ? worker : { ...worker, state: "silent" },
  );
}

function listed({ name, bucket }: QueueFacts, workers: readonly ListedWorker[]): ListedQueue {
  const own = workers.filter(({ queue, state }) => queue === name && state !== "silent");
  const atWork = own.filter(({ state }) => state === "running");
  const places = atWork.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const running = own.reduce((sum, worker) => sum + worker.running, 0);
  return { name, bucket, workers: atWork.length, places, running };
}

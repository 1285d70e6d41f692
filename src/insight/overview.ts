import * as z from "zod";
import { reasonOf } from "../core/describe.ts";
import { InvalidOptionError } from "../core/errors.ts";
import { NAME, readOptions, wholeNumber } from "../core/input/options.ts";
import type {
  InsightStore,
  OutboxFacts,
  QueueFacts,
  WorkerFacts,
} from "../core/stores/insight/store.ts";
import { describeChange, type LoggedChange } from "../core/stores/insight/changes.ts";
import type { BucketBrief, BucketStatus } from "../throttle/bucket/facts/status.ts";
import type { Statuses } from "./statuses.ts";

export interface OverviewOptions {
  /** The `next` of the previous page. Defaults to the first page. */
  readonly after?: string | undefined;
  /** The `nextQueue` of the previous page. Defaults to the first page. */
  readonly afterQueue?: string | undefined;
  /**
   * The maximum number of buckets on the page, and of queues on the page: 1 to 1,000. Defaults to
   * 100.
   */
  readonly limit?: number | undefined;
  /**
   * Omits each bucket's `limits`, because reading them takes one Redis request per bucket. An
   * overview of many buckets then takes half the time. Defaults to false.
   */
  readonly brief?: boolean | undefined;
}

/** A process that uses buckets. */
export interface Replica {
  /** A unique id of the process. */
  readonly replica: string;
  readonly host: string;
  readonly pid: number;
  /** The version of Sluice in the process. */
  readonly version: string;
  /** When the process started, in ms since 1970, by the clock of its machine. */
  readonly startedAtMs: number;
  /**
   * When the process last reported, in ms since 1970, by the clock of Redis. A process reports at
   * least every thirty seconds.
   */
  readonly seenAtMs: number;
}

/**
 * A queue that at least one process has open, with its worker totals. `queue.status()` returns the
 * backlog.
 */
export interface ListedQueue {
  readonly name: string;
  /** The bucket that limits the queue's jobs. */
  readonly bucket: string;
  /**
   * The number of running workers, as `queue.status()` counts them. `totalConcurrency` is the number
   * of jobs that these workers may hold together, and `running` is how many jobs run.
   */
  readonly workers: number;
  readonly totalConcurrency: number;
  /** @deprecated Use `totalConcurrency`, which has the same value. */
  readonly places: number;
  readonly running: number;
}

/** A worker, from its process's latest report. Processes report a change within about a second. */
export interface ListedWorker {
  /** A unique id of the worker. */
  readonly worker: string;
  /** The id of the worker's process, as in `replicas`. */
  readonly replica: string;
  readonly queue: string;
  /**
   * `"closing"` while its last handlers finish. `"silent"` after about 10 seconds without a sign of
   * life, for example because the worker was killed.
   */
  readonly state: "running" | "closing" | "silent";
  /** When this state began, in ms since 1970, by the clock of the worker's machine. */
  readonly sinceMs: number;
  /** The number of jobs whose handler runs. */
  readonly running: number;
  /** The number of fetched jobs that still wait for a slot. */
  readonly waiting: number;
  /** The maximum number of jobs that the worker holds at once. */
  readonly concurrency: number;
  /** Whether the queue was paused when the worker last checked. */
  readonly paused: boolean;
  /** The name of a program that takes the jobs over HTTP, from the process. Undefined for other workers. */
  readonly client?: string | undefined;
}

/** An outbox, from the latest report of a relay. Relays report every 5 to 30 seconds. */
export interface ListedOutbox {
  /** The unique id of the outbox, from its database. */
  readonly outbox: string;
  /** The schema and the name of its table: `"public.sluice_outbox"`. */
  readonly name: string;
  /** The number of rows that were not moved yet, without failed rows. */
  readonly pending: number;
  /** The number of rows that relays no longer try. */
  readonly failed: number;
  /** The age of the oldest pending row, in ms. 0 without pending rows. */
  readonly oldestMs: number;
  /** The number of rows that all relays have moved, as far as they reported it. Only increases. */
  readonly moved: number;
  /** The age of the report, in ms. Above a minute, no relay is running or Postgres is unreachable. */
  readonly reportedAgoMs: number;
}

export interface Overview<Status extends BucketBrief = BucketStatus> {
  /**
   * The buckets of one page, sorted by name. A bucket stays listed for 30 days after its last call.
   * A bucket that a rules file names is always listed.
   */
  readonly buckets: readonly Status[];
  /**
   * Buckets of this page whose server is unreachable, and the unreachable servers themselves. An
   * entry for a server has an undefined `bucket`.
   */
  readonly unreachable: readonly Unreachable[];
  /** Pass this value as `after` to get the next page. Undefined on the last page. */
  readonly next: string | undefined;
  /**
   * The queues of one page, sorted by name. A queue stays listed for 30 days after a process last
   * had it open.
   */
  readonly queues: readonly ListedQueue[];
  /** Pass this value as `afterQueue` to get the next page of queues. Undefined on the last page. */
  readonly nextQueue: string | undefined;
  /** The processes that reported in the last 90 seconds. */
  readonly replicas: readonly Replica[];
  /**
   * All workers of the processes in `replicas`. A killed worker is listed as `"silent"` until its
   * process has not reported for 90 seconds.
   */
  readonly workers: readonly ListedWorker[];
  /** The outboxes whose relays have reported in the last 30 days, sorted by name. */
  readonly outboxes: readonly ListedOutbox[];
}

/** A bucket or server that is missing from an overview, and the reason. */
export interface Unreachable {
  readonly bucket: string | undefined;
  readonly reason: string;
}

export interface ChangesOptions {
  /** Lists only the changes of this bucket. Defaults to all buckets and queues. */
  readonly bucket?: string | undefined;
  /**
   * Lists only the changes of this queue, or of the endpoints of the webhook sender with this name.
   * Cannot be combined with `bucket`.
   */
  readonly queue?: string | undefined;
  /**
   * Lists only changes that are older than the change with this id. Use it to get the next page.
   * Defaults to the newest changes.
   */
  readonly before?: string | undefined;
  /** The maximum number of changes on the page, 1 to 1,000. Defaults to 100. */
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

export function createInsight({ insight, statuses }: InsightParts): Insight {
  return {
    async overview(given = {}) {
      const read = readOptions("overview()", OVERVIEW, given);
      const { after = "", afterQueue = "", limit = A_PAGE, brief = false } = read;
      const [{ names, errors }, { queues: found }, replicas, reported, outboxes] =
        await Promise.all([
          insight.bucketNames({ after, limit: limit + 1 }),
          insight.queues({ after: afterQueue, limit: limit + 1 }),
          insight.replicas(),
          insight.workers(),
          insight.outboxes(),
        ]);
      const workers = await markSilent(reported, insight);
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
      const listedOutboxes = outboxes.map(outboxOf).toSorted(byName);
      const facts = { queues, nextQueue, workers, replicas, outboxes: listedOutboxes };
      return { buckets, next, ...facts, unreachable };
    },
    async changes(given = {}) {
      const where = "changes()";
      const { bucket, queue, before, limit = A_PAGE } = readOptions(where, CHANGES, given);
      if (bucket !== undefined && queue !== undefined) {
        const remedy = "give either queue or bucket: a change belongs to one of them";
        throw new InvalidOptionError({ where, option: "queue", value: queue, remedy });
      }
      return (await insight.changes({ bucket, queue, before, limit })).map(describeChange);
    },
  };
}

/**
 * Marks a worker as silent if `queue.status()` no longer counts it, because it has sent no recent
 * sign of life.
 */
async function markSilent(
  workers: readonly WorkerFacts[],
  insight: InsightStore,
): Promise<readonly ListedWorker[]> {
  const live = new Set(await insight.liveWorkers([...new Set(workers.map(({ queue }) => queue))]));
  // The id of a client begins with that of the worker from which it takes jobs.
  const idOf = ({ worker }: WorkerFacts): string => worker.split("/")[0]!;
  return workers.map((worker) =>
    live.has(idOf(worker)) || worker.state === "closing" ? worker : { ...worker, state: "silent" },
  );
}

/** The oldest row ages further after the report. */
function outboxOf(facts: OutboxFacts): ListedOutbox {
  const { pending, oldestMs, reportedAgoMs } = facts;
  return { ...facts, oldestMs: pending === 0 ? 0 : oldestMs + reportedAgoMs };
}

function byName(one: ListedOutbox, other: ListedOutbox): number {
  return one.name.localeCompare(other.name) || one.outbox.localeCompare(other.outbox);
}

function listed({ name, bucket }: QueueFacts, workers: readonly ListedWorker[]): ListedQueue {
  const own = workers.filter(({ queue, state }) => queue === name && state !== "silent");
  const atWork = own.filter(({ state }) => state === "running");
  const totalConcurrency = atWork.reduce((sum, { concurrency }) => sum + concurrency, 0);
  const running = own.reduce((sum, worker) => sum + worker.running, 0);
  return {
    name,
    bucket,
    workers: atWork.length,
    totalConcurrency,
    places: totalConcurrency,
    running,
  };
}

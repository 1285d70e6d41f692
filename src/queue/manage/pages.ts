import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import { levelsOfText, MOST_LEVELS, type Key } from "../../core/key-path.ts";
import { KEY, readOptional, wholeNumber } from "../../core/input/options.ts";
import type { PageRequest } from "../../stores/redis/scripts/queue/steering.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { Stored } from "../bullmq/stored-job.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { JOB_STATES, type JobState } from "../job.ts";

/** Selects jobs. A job must match all given fields. */
export interface JobsFilter {
  /** The state of the jobs. Defaults to all states. */
  readonly state?: JobState | undefined;
  /** The key of the jobs. All keys below this key are included. */
  readonly key?: Key | undefined;
  /** The name of the jobs, as passed to `enqueue`. */
  readonly name?: string | undefined;
}

/** A validated filter, with its key encoded as text. */
type ReadJobsFilter = Omit<JobsFilter, "key"> & { readonly key?: string | undefined };

export interface JobsOptions extends JobsFilter {
  /** The `cursor` of the previous page. Use it only with the same filter. Defaults to the first page. */
  readonly cursor?: string | undefined;
  /** The most jobs on the page, from 1 to 1,000. Defaults to 100. */
  readonly limit?: number | undefined;
}

/** A page of BullMQ's jobs. */
interface StoredPage {
  readonly jobs: readonly Stored<unknown>[];
  /** Undefined after the last page. */
  readonly cursor: string | undefined;
}

export interface Pages {
  /**
   * Reads one page of jobs.
   *
   * @throws {@link InvalidOptionError} when an option can never work.
   */
  read(where: string, options: unknown): Promise<StoredPage>;
  /** Yields the ids of the jobs that match, in batches. Each batch is a separate request. */
  idsOf(filter: ReadJobsFilter): AsyncGenerator<readonly string[]>;
}

const SHOWN = 100;
/** How many jobs one script checks. Redis is blocked while the script runs. */
const LOOKED_AT = 1_000;
/** How many jobs are checked for one page. If few of them match, the page has fewer jobs than `limit`, and a cursor. */
const MOST_LOOKED_AT = 20_000;

const FILTERED = { key: KEY_PATH.optional(), name: KEY.optional() };
const NO_CURSOR = { error: "give the cursor of the last page" };
const JOBS = z.strictObject({
  state: z
    .enum(JOB_STATES, {
      error: `give one of ${JOB_STATES.map((state) => `"${state}"`).join(", ")}`,
    })
    .optional(),
  ...FILTERED,
  cursor: z.string(NO_CURSOR).optional(),
  limit: wholeNumber(1, 1_000, "jobs").optional(),
});

/** One structure in Redis that contains jobs in one state. */
type JobSet = Pick<PageRequest, "jobSet" | "parked">;

/**
 * The structures in Redis that contain the jobs of each state, in the order in which they are read. A waiting job may
 * move from one structure to the next, but not back, so a job that keeps waiting is not missed.
 */
const JOB_SETS: Readonly<Record<JobState, readonly JobSet[]>> = {
  waiting: [{ jobSet: "wait" }, { jobSet: "prioritized" }, { jobSet: "delayed", parked: true }],
  active: [{ jobSet: "active" }],
  delayed: [{ jobSet: "delayed", parked: false }],
  done: [{ jobSet: "completed" }],
  failed: [{ jobSet: "failed" }],
};
const ALL = ["wait", "prioritized", "delayed", "active", "completed", "failed"] as const;

function jobSetsOf({ state, key }: ReadJobsFilter): readonly JobSet[] {
  if (state === undefined) return ALL.map((jobSet) => ({ jobSet }));
  if (state !== "waiting" || key === undefined) return JOB_SETS[state];
  const own: JobSet[] = [{ jobSet: "wait" }, { jobSet: "prioritized" }, { jobSet: { lane: key } }];
  const hasHeads = levelsOfText(key) < MOST_LEVELS;
  return hasHeads ? [...own, { jobSet: "delayed", parked: "below" }] : own;
}

export function createPages(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "page">;
}): Pages {
  const { queue, access, lanes } = parts;

  function find(
    { key, name }: ReadJobsFilter,
    { jobSet, parked }: JobSet,
    { from, most }: Pick<PageRequest, "from" | "most">,
  ): ReturnType<LaneStore["page"]> {
    const request = { jobSet, parked, key, name, from, most, lookedAt: LOOKED_AT };
    return access.ask(() => lanes.page({ queue, ...request }));
  }

  return {
    async read(where, given) {
      const { cursor, limit = SHOWN, ...filter } = readOptional(where, JOBS, given);
      const jobSets = jobSetsOf(filter);
      let { at, from } = readCursor(where, cursor, jobSets);
      const ids: string[] = [];
      for (let looked = 0; at < jobSets.length && ids.length < limit; looked += LOOKED_AT) {
        if (looked >= MOST_LOOKED_AT) break;
        const found = await find(filter, jobSets[at]!, { from, most: limit - ids.length });
        ids.push(...found.ids);
        from = found.end;
        if (from === "") at += 1;
      }
      const jobs = await access.ask((stored) => Promise.all(ids.map((id) => stored.getJob(id))));
      return {
        // Leaves out jobs that were removed after their ids were read.
        jobs: jobs.filter((job) => job?.name !== undefined) as Stored<unknown>[],
        cursor: at < jobSets.length ? `${at} ${from}` : undefined,
      };
    },
    async *idsOf(filter) {
      for (const jobSet of jobSetsOf(filter)) {
        let from = "";
        do {
          const { ids, end } = await find(filter, jobSet, { from, most: LOOKED_AT });
          if (ids.length > 0) yield ids;
          from = end;
        } while (from !== "");
      }
    },
  };
}

const SCORED = /^-?\d+(\.\d+)?(e[+-]?\d+)? ./;

function readCursor(
  where: string,
  cursor: string | undefined,
  jobSets: readonly JobSet[],
): { at: number; from: string } {
  if (cursor === undefined) return { at: 0, from: "" };
  const [, at, from] = /^(\d) (.*)$/s.exec(cursor) ?? [];
  const jobSet = jobSets[Number(at)];
  if (jobSet !== undefined && from !== undefined && from.length < 2_000) {
    const isList = jobSet.jobSet === "wait" || jobSet.jobSet === "active";
    if (from === "" || isList || SCORED.test(from)) return { at: Number(at), from };
  }
  const remedy = NO_CURSOR.error;
  throw new InvalidOptionError({ where, option: "cursor", value: cursor, remedy });
}

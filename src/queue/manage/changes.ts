/** Changes single jobs, and logs changes of many jobs. */
import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../../core/input/options.ts";
import type { JobMove, Moved, QueueCounts } from "../../stores/redis/scripts/queue/steering.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import type { StoredAccess } from "../bullmq/stored-queue.ts";
import { JobStateError } from "../errors.ts";
import { AT } from "../options.ts";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import {
  filterFacts,
  type ChangeFacts,
  type QueueAction,
} from "../../core/stores/insight/changes.ts";
import type { ChangeLog } from "../../core/stores/insight/change-log.ts";

/** When a job becomes due: set either `at` or `delayMs`. */
export type DueOptions =
  | { readonly at: Date | number; readonly delayMs?: undefined }
  | { readonly delayMs: number; readonly at?: undefined };

/** Changes jobs that no worker holds. */
export interface Changes {
  /** @throws {@link JobStateError} when the job runs or is done. */
  update(id: string, json: string): Promise<boolean>;
  reschedule(id: string, due: unknown): Promise<boolean>;
  runNow(id: string): Promise<boolean>;
  /**
   * Reschedules up to a thousand jobs. Resolves with the number of rescheduled jobs, and the time at which they are
   * due.
   */
  move(ids: readonly string[], at: JobMove["at"]): Promise<{ moved: number; atMs: number }>;
}

const DUE = z.strictObject({
  at: AT.optional(),
  delayMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
});

/** @throws {@link InvalidOptionError} unless exactly one of `at` and `delayMs` is set, and nothing else. */
export function readDue(where: string, given: unknown): JobMove["at"] {
  const { at, delayMs } = readOptions(where, DUE, given);
  if (at !== undefined && delayMs !== undefined) {
    const remedy = "give it or delayMs, not both";
    throw new InvalidOptionError({ where, option: "at", value: at, remedy });
  }
  if (delayMs !== undefined) return { inMs: delayMs };
  if (at !== undefined) return { ms: Number(at) };
  const remedy = "say when: { delayMs: 60_000 }, or { at: new Date(…) }";
  throw new InvalidOptionError({ where, option: "options", value: given, remedy });
}

export function createChanges(parts: {
  readonly queue: string;
  readonly access: StoredAccess;
  readonly lanes: Pick<LaneStore, "move" | "update">;
  /**
   * Called with the first of the rescheduled jobs, and its due time in ms since 1970. The worker that fetches this job
   * finds the other jobs.
   */
  readonly onDue: (id: string, atMs: number) => void;
}): Changes {
  const { queue, access, lanes, onDue } = parts;

  async function move(ids: readonly string[], how: JobMove): Promise<Moved> {
    const moved = await access.ask(() => lanes.move({ queue, ids, ...how }));
    const first = ids[moved.moves.indexOf("moved")];
    if (first !== undefined) onDue(first, moved.atMs);
    return moved;
  }

  async function moveOne(id: string, how: JobMove): Promise<boolean> {
    return (await move([id], how)).moves[0] !== "refused";
  }

  return {
    async update(id, json) {
      const outcome = await access.ask(() => lanes.update({ queue, id, json }));
      if (outcome === "active" || outcome === "done") {
        throw new JobStateError({ jobId: id, state: outcome });
      }
      return outcome === "updated";
    },
    async reschedule(id, due) {
      return moveOne(id, { at: readDue("reschedule()", due), onlyDelayed: false });
    },
    runNow: (id) => moveOne(id, { at: { inMs: 0 }, onlyDelayed: true }),
    async move(ids, at) {
      const { atMs, moves } = await move(ids, { at, onlyDelayed: false });
      return { moved: moves.filter((each) => each === "moved").length, atMs };
    },
  };
}

interface BulkChange extends WhoAndWhy {
  readonly action: QueueAction;
  /** Selects the changed jobs: the key as text, and the other fields of the filter. */
  readonly filter: Readonly<Record<string, unknown>>;
}

/** Changes many jobs, and records the change in the log with the job counts before and after. */
export type NoteBulk = (change: BulkChange, how: () => Promise<number>) => Promise<number>;

export function createNoteBulk({
  queue,
  log,
  counts,
}: {
  readonly queue: string;
  readonly log: ChangeLog;
  readonly counts: () => Promise<QueueCounts>;
}): NoteBulk {
  const look = async (): Promise<ChangeFacts> => ({ ...(await counts()) });
  return async ({ action, filter: { key, ...filter }, by, reason }, how) => {
    // If the jobs cannot be counted, the change is still made: counting may fail although removing works.
    const before = await look().catch(() => undefined);
    const change = { queue, action, key: key as string | undefined, filter: filterFacts(filter) };
    return log.make({ ...change, by, reason, before }, how, async (jobs) => ({
      jobs,
      after: await look().catch(() => undefined),
    }));
  };
}

import type { Queue as StoredQueue } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { LaneStore } from "../../core/queue-store.ts";
import { readJob, type Stored } from "../bullmq/stored-job.ts";
import { movedToDelayed, movedToWait } from "../bullmq/errors.ts";
import { isOnItsWay } from "../bullmq/job-fields.ts";
import { PARK_MS } from "../bullmq/stored-job.ts";

export interface ParkParts {
  readonly name: string;
  readonly logger: Logger;
  readonly lanes: LaneStore;
  /** The weight of a key's lane, if it is not 1. */
  readonly weightOf: (key: string | undefined) => number | undefined;
  /** @throws {@link StoreUnavailableError} when Redis does not answer in time. */
  readonly open: () => Promise<StoredQueue>;
}

/** Parks jobs that were just stored in the lanes of their keys; it never rejects. */
export type ParkFromProducer = (
  queue: StoredQueue,
  jobs: readonly Stored<unknown>[],
) => Promise<void>;

export function createParkFromProducer(parts: ParkParts): ParkFromProducer {
  const { name, logger, lanes, weightOf, open } = parts;

  async function join(
    queue: StoredQueue,
    jobs: readonly Stored<unknown>[],
    isDoubtful: (job: Stored<unknown>) => boolean,
  ): Promise<void> {
    const joining = await Promise.all(
      jobs.map(async (job) => !isDoubtful(job) || isOnItsWay(queue, job)),
    );
    const ours = jobs.filter((_job, index) => joining[index]).map(readJob);
    const laneJobs = ours.map(({ id, key }) => ({ id, weight: weightOf(key) }));
    if (laneJobs.length > 0) await lanes.join(name, laneJobs);
  }

  return async (queue, jobs) => {
    try {
      await join(queue, jobs, isDeduplicated);
    } catch (error) {
      // They are stored: to say that they are not would have them stored twice.
      const reason = reasonOf(error);
      const problem = `Jobs of queue "${name}" join their lanes late, after ${PARK_MS} ms at most: ${reason}`;
      logger.warn({ queue: name, jobs: jobs.length, reason }, problem);
      // When Redis is back; they may have joined unbeknownst, and have gone on since. Should this fail
      // too, they join by themselves at the time that the warning names.
      void open()
        .then((again) => join(again, jobs, () => true))
        .catch(() => undefined);
    }
  };
}

/** It may stand for one of its `dedupeId` that waits for a later time. */
function isDeduplicated({ opts }: Stored<unknown>): boolean {
  return opts.deduplication !== undefined;
}

/** Sets a job back that was fetched and has not begun: others fetch it in its turn, and no attempt is used. */
export async function parkFromWorker<Data>(
  stored: Stored<Data>,
  token: string,
  parts: {
    readonly queue: string;
    readonly lanes: Pick<LaneStore, "join">;
    /** The weight of a key's lane, if it is not 1. */
    readonly weightOf: (key: string | undefined) => number | undefined;
  },
): Promise<never> {
  const { queue, lanes, weightOf } = parts;
  const { id, key } = readJob(stored);
  if (key === undefined) {
    await stored.moveToWait(token);
    throw movedToWait();
  }
  // BullMQ would fetch it after all that come out of lanes: they lie in its list, and this one would have a priority.
  await stored.moveToDelayed(Date.now() + PARK_MS, token);
  // Not left to the feeder: the connection may be closed as soon as this job has ended.
  await lanes.join(queue, [{ id, weight: weightOf(key) }]);
  throw movedToDelayed();
}

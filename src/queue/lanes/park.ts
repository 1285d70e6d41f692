import type { Queue as StoredQueue } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import { movedToWait } from "../bullmq/errors.ts";
import { isOnItsWay, PARK_MS, encodedKeyOf, type Stored } from "../bullmq/stored-job.ts";
import type { WeightsOf } from "./lane-options.ts";

export interface ParkParts {
  readonly name: string;
  readonly logger: Logger;
  readonly lanes: Pick<LaneStore, "join">;
  /** The weights of a key's lane and of its parent keys. */
  readonly weightsOf: WeightsOf;
  /**
   * Opens BullMQ's queue.
   *
   * @throws {@link StoreUnavailableError} when Redis does not reply in time.
   */
  readonly open: () => Promise<StoredQueue>;
}

/** Parks new jobs in the lanes of their keys. Never rejects. */
export async function parkFromProducer(
  parts: ParkParts,
  jobs: readonly Stored<unknown>[],
): Promise<void> {
  const { name, logger, open } = parts;
  try {
    await join(parts, jobs);
  } catch (error) {
    // Does not reject, because the jobs are stored already. After a rejection, the caller would store them again.
    const reason = reasonOf(error);
    const problem = `Could not park jobs of queue "${name}" in their lanes; they join within ${PARK_MS} ms: ${reason}`;
    logger.warn({ queue: name, jobs: jobs.length, reason }, problem);
    // Tries again once Redis is reachable. Some jobs may have joined their lanes although no reply came, so only the
    // remaining jobs join now. If this fails too, the jobs join by themselves after the delay in the warning.
    void open()
      .then(async (again) => {
        const onTheirWay = await Promise.all(jobs.map((job) => isOnItsWay(again, job)));
        return join(
          parts,
          jobs.filter((_job, index) => onTheirWay[index]),
        );
      })
      .catch(() => undefined);
  }
}

async function join(
  { name, lanes, weightsOf }: ParkParts,
  jobs: readonly Stored<unknown>[],
): Promise<void> {
  const laneJobs = jobs.map((job) => ({ id: job.id!, weights: weightsOf(encodedKeyOf(job)) }));
  if (laneJobs.length > 0) await lanes.join({ queue: name, jobs: laneJobs });
}

/**
 * Puts a fetched job that has not started back into its old position in the queue. This does not count as an attempt.
 */
export async function parkFromWorker<Data>(
  stored: Stored<Data>,
  token: string,
  parts: {
    readonly queue: string;
    readonly lanes: Pick<LaneStore, "putBack">;
    /** The weights of a key's lane and of its parent keys. */
    readonly weightsOf: WeightsOf;
  },
): Promise<never> {
  const { queue, lanes, weightsOf } = parts;
  const id = stored.id!;
  // Uses our own script, because BullMQ's methods do not keep the position. Does not use the fetcher, because the
  // connection may close as soon as this function returns.
  const way = await lanes.putBack({ queue, id, token, weights: weightsOf(encodedKeyOf(stored)) });
  // A cancelled job is removed instead. If the removal fails, the next worker that fetches the job tries again.
  if (way === "cancelled") await stored.remove().catch(() => undefined);
  throw movedToWait();
}

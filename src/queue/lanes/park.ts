import type { Queue as StoredQueue } from "bullmq";
import { reasonOf } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import type { LaneStore } from "../../stores/redis/queue/store.ts";
import { movedToWait } from "../bullmq/errors.ts";
import { isOnItsWay, PARK_MS, encodedKeyOf, type Stored } from "../bullmq/stored-job.ts";
import type { WeightsOf } from "./weights.ts";

export interface ParkParts {
  readonly name: string;
  readonly logger: Logger;
  readonly lanes: Pick<LaneStore, "join">;
  /** The weights of a key's lane and of the heads of its path. */
  readonly weightsOf: WeightsOf;
  /** @throws {@link StoreUnavailableError} when Redis does not answer in time. */
  readonly open: () => Promise<StoredQueue>;
}

/** Parks jobs that were just stored in the lanes of their keys; never rejects. */
export async function parkFromProducer(
  parts: ParkParts,
  jobs: readonly Stored<unknown>[],
): Promise<void> {
  const { name, logger, open } = parts;
  try {
    await join(parts, jobs);
  } catch (error) {
    // The jobs are stored: to reject would have them stored twice.
    const reason = reasonOf(error);
    const problem = `Could not park jobs of queue "${name}" in their lanes; they join within ${PARK_MS} ms: ${reason}`;
    logger.warn({ queue: name, jobs: jobs.length, reason }, problem);
    // Tried again once Redis is back. They may have joined although no reply came, and may have gone on since. If this
    // fails too, they join by themselves when the delay ends that the warning names.
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

/** Puts a job back that was fetched and not started: into its old place, and no attempt is used. */
export async function parkFromWorker<Data>(
  stored: Stored<Data>,
  token: string,
  parts: {
    readonly queue: string;
    readonly lanes: Pick<LaneStore, "putBack">;
    /** The weights of a key's lane and of the heads of its path. */
    readonly weightsOf: WeightsOf;
  },
): Promise<never> {
  const { queue, lanes, weightsOf } = parts;
  const id = stored.id!;
  // BullMQ's own ways back keep no place. Not left to the fetcher: the connection may be closed as soon as this has ended.
  const way = await lanes.putBack({ queue, id, token, weights: weightsOf(encodedKeyOf(stored)) });
  // If that fails, the next worker that gets it tries again.
  if (way === "cancelled") await stored.remove().catch(() => undefined);
  throw movedToWait();
}

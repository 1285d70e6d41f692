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
  /** @throws {@link StoreUnavailableError} when Redis does not answer in time. */
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
    // The jobs are stored already. After a rejection, the caller would store them again.
    const reason = reasonOf(error);
    const problem = `Could not park jobs of queue "${name}" in their lanes; they join within ${PARK_MS} ms: ${reason}`;
    logger.warn({ queue: name, jobs: jobs.length, reason }, problem);
    // Tries again once Redis is reachable. The jobs may have joined although no reply came, so only those still on
    // their way join. If this fails too, they join by themselves after the delay in the warning.
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

/** Returns a job that was fetched and not started to its old position. This uses no attempt. */
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
  // BullMQ's own methods do not keep the position. The fetcher is not used, because the connection may close as soon as
  // this returns.
  const way = await lanes.putBack({ queue, id, token, weights: weightsOf(encodedKeyOf(stored)) });
  // If this fails, the next worker that fetches the job tries again.
  if (way === "cancelled") await stored.remove().catch(() => undefined);
  throw movedToWait();
}

import { reasonOf } from "../core/describe.ts";
import type { Logger } from "../core/logger.ts";
import type { QueueConnection } from "./connection.ts";
import { readJob, type Job, type Stored } from "./job.ts";

/**
 * The deadlines by which jobs have to begin. One that has begun in time has kept its deadline, also if its worker
 * was lost then, of which BullMQ keeps no trace: it is to be done again, and not to expire.
 */
export interface Deadlines {
  /** The job, with the deadline that it still has to keep. */
  read<Data>(stored: Stored<Data>): Job<Data> | Promise<Job<Data>>;
  /** The job begins now. */
  keep(job: Job<unknown>): void;
}

export function createDeadlines(parts: {
  readonly queue: string;
  readonly connection: Pick<QueueConnection, "noteBegun" | "begunBy">;
  readonly logger: Logger;
}): Deadlines {
  const { queue, connection, logger } = parts;

  async function withoutKept<Data>(job: Job<Data>): Promise<Job<Data>> {
    const keptMs = await connection.begunBy(queue, job.id);
    return keptMs === job.startByMs ? { ...job, startByMs: undefined } : job;
  }

  return {
    read(stored) {
      const job = readJob(stored);
      // Only the job of a worker that was lost can have begun before.
      const mayHaveBegun = job.startByMs !== undefined && stored.stalledCounter > 0;
      return mayHaveBegun ? withoutKept(job) : job;
    },
    keep({ id, startByMs }) {
      if (startByMs === undefined) return;
      connection.noteBegun(queue, id, startByMs).catch((error: unknown) => {
        const facts = { queue, job: id, reason: reasonOf(error) };
        logger.warn(
          facts,
          "It is not noted that a job has begun: should its worker be lost, it expires.",
        );
      });
    },
  };
}

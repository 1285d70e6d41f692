/**
 * BullMQ makes JSON of a job's data when it stores the job. Ours is made when `enqueue` is called, so BullMQ is given it
 * as it is: `Job.createBulk` of a class whose `asJSON` has the data already. No option of BullMQ takes JSON, and no
 * upstream issue known; checked with bullmq 6.7.0 (`createBulk` and `asJSON` in job.js). The time of a job is set on it,
 * too: as an option it would be stored twice.
 */
import type { Job as StoredJob, Queue } from "bullmq";
import { loadBullmq } from "./load-bullmq.cjs";
import type { Stored, StoredOptions } from "./stored-job.ts";

/** A job to be stored. */
export interface NewJob<Data> {
  readonly name: string;
  /** What is stored as its data. */
  readonly json: string;
  /** Its data, for the producer. */
  readonly value: Data;
  readonly opts: StoredOptions;
  /** Since when its delay counts, in ms since 1970 on Redis' clock. */
  readonly storedAtMs: number;
}

/** Stores jobs in one round trip. */
export async function addJobs<Data>(
  queue: Queue,
  jobs: readonly NewJob<Data>[],
): Promise<Stored<Data>[]> {
  readyJob ??= createReadyJob();
  const given = jobs.map(({ name, opts, ...job }) => ({ name, data: new ReadyData(job), opts }));
  return (await readyJob.createBulk(queue, given)) as unknown as Stored<Data>[];
}

type Ready = Pick<NewJob<unknown>, "json" | "value" | "storedAtMs">;

class ReadyData implements Ready {
  readonly json: string;
  readonly value: unknown;
  readonly storedAtMs: number;

  constructor({ json, value, storedAtMs }: Ready) {
    this.json = json;
    this.value = value;
    this.storedAtMs = storedAtMs;
  }
}

let readyJob: Pick<typeof StoredJob, "createBulk"> | undefined;

function createReadyJob(): Pick<typeof StoredJob, "createBulk"> {
  const { Job } = loadBullmq();
  return class ReadyJob extends Job {
    override asJSON(): ReturnType<StoredJob["asJSON"]> {
      const ready: unknown = this.data;
      if (!(ready instanceof ReadyData)) return super.asJSON();
      this.timestamp = ready.storedAtMs;
      // BullMQ makes "{}" of nothing.
      this.data = undefined;
      const fields = super.asJSON();
      this.data = ready.value;
      return Object.assign(fields, { data: ready.json });
    }
  };
}

/**
 * BullMQ makes JSON of a job's data when it stores the job. Ours is made when `enqueue` is called, so BullMQ is given it
 * as it is: `Job.createBulk` of a class whose `asJSON` has the data already. No option of BullMQ takes JSON, and no
 * upstream issue known; checked with bullmq 6.7.0 (`createBulk` and `asJSON` in job.js). The time of a job is set on it,
 * too: as an option it would be stored twice.
 */
import type { Job as StoredJob, Queue } from "bullmq";
import type { AddedJob, JobMet } from "../../core/stores/queue/store.ts";
import { loadBullmq } from "./load-bullmq.cjs";
import { readFields, type Stored, type StoredOptions } from "./stored-job.ts";

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

/** A job to be stored, unless another is there that has its id or its dedupeId. */
export interface LookedUpJob<Data> extends NewJob<Data> {
  readonly own: Pick<AddedJob, "id" | "isParked" | "weights" | "dedupe">;
}

/** What is stored of a job, and whether that is the job that was given. */
export interface Met<Data> {
  readonly stored: Stored<Data>;
  readonly isNew: boolean;
}

/** Stores jobs by a script of ours, which looks first what is there. */
export async function addLookedUpJobs<Data>(
  queue: Queue,
  jobs: readonly LookedUpJob<Data>[],
  add: (jobs: readonly AddedJob[]) => Promise<readonly JobMet[]>,
): Promise<Met<Data>[]> {
  const { Job } = loadBullmq();
  const made = jobs.map(({ name, value, opts, storedAtMs }) =>
    Object.assign(new Job(queue, name, value, opts), { timestamp: storedAtMs }),
  );
  const met = await add(made.map((job, index) => addedJob(job as Stored<Data>, jobs[index]!)));
  const stored: Met<Data>[] = [];
  for (const [index, { id, isNew, fields }] of met.entries()) {
    const found =
      fields === undefined
        ? await Job.fromId(queue, id)
        : fields.length > 0 && Job.fromJSON(queue, readFields(fields, id), id);
    const job = found || Object.assign(made[index]!, { id });
    stored.push({ stored: job as unknown as Stored<Data>, isNew });
  }
  return stored;
}

function addedJob<Data>(
  { name, opts, timestamp, priority }: Stored<Data>,
  { json, own }: LookedUpJob<Data>,
): AddedJob {
  const { deduplication, ...others } = opts;
  // BullMQ's short name, the only one of those that our jobs have.
  const storedOpts = JSON.stringify({ ...others, de: deduplication });
  return { ...own, name, json, opts: storedOpts, timestamp, delay: opts.delay ?? 0, priority };
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

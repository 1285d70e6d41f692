/**
 * Adapts a queue to bull-board. The adapter reads from BullMQ, but makes changes through Sluice,
 * which also updates lanes, ordered keys, schedules and pending results.
 */
import type { BullMQAdapter as Adapter } from "@bull-board/api/bullMQAdapter";
import type { WhoAndWhy } from "../../core/input/who-and-why.ts";
import { PRIORITIES, type Priority } from "../../core/input/options.ts";
import type { QueuedJob } from "../../queue/enqueue/job-handle.ts";
import type { Queue } from "../../queue/queue.ts";
import { HttpProblem } from "../problem.ts";
import { loadBullBoard } from "./load-bull-board.cjs";

const BullMQAdapter: typeof Adapter = loadBullBoard().BullMQAdapter;

type StoredQueue = ConstructorParameters<typeof BullMQAdapter>[0];
type StoredJob = Awaited<ReturnType<Adapter["addJob"]>>;
type Given = Parameters<Adapter["addJob"]>[2];
type Cleaned = Parameters<Adapter["clean"]>[0];

export interface SteeredQueueSettings {
  readonly queue: Queue<unknown>;
  readonly stored: StoredQueue;
  /** Whether the user may change jobs and see their data. */
  readonly mayAct: boolean;
  /** The name of the user. */
  readonly by: string;
  /** Runs an operation on the queue in the name of the user. */
  readonly run: <Result>(name: string, input?: object) => Promise<Result>;
}

/** Replaces the data of jobs for users who may not see it. */
const HIDDEN = "Hidden: only a token with the role act shows this.";

/** A subclass of bull-board's adapter, because bull-board accepts only instances of that class. */
export class SteeredQueue extends BullMQAdapter {
  override readonly allowCompletedRetries = false;
  readonly #queue: Queue<unknown>;
  readonly #mayAct: boolean;
  readonly #byHand: WhoAndWhy;
  readonly #run: SteeredQueueSettings["run"];

  constructor({ queue, stored, mayAct, by, run }: SteeredQueueSettings) {
    super(stored, { readOnlyMode: !mayAct });
    this.#queue = queue;
    this.#mayAct = mayAct;
    this.#byHand = { by };
    this.#run = run;
    if (mayAct) return;
    for (const field of ["data", "returnValue", "progress"] as const) {
      this.setFormatter(field, () => HIDDEN);
    }
  }

  override getName(): string {
    return this.#queue.name;
  }

  /**
   * Returns no workers: BullMQ finds workers by their connections, but Sluice's workers share
   * connections.
   */
  override getWorkers(): Promise<null> {
    return Promise.resolve(null);
  }

  /** Returns no flow producer, because Sluice has no flows. */
  override getFlowProducer(): Promise<null> {
    return Promise.resolve(null);
  }

  override async isPaused(): Promise<boolean> {
    return (await this.#queue.paused()).some(({ key }) => key === undefined);
  }

  override async getJob(id: string): Promise<StoredJob | undefined> {
    const job = await super.getJob(id);
    return job && this.#steered(job);
  }

  override async getJobs(...page: Parameters<Adapter["getJobs"]>): Promise<StoredJob[]> {
    return (await super.getJobs(...page)).map((job) => this.#steered(job));
  }

  override getJobLogs(id: string): Promise<string[]> {
    return this.#mayAct ? super.getJobLogs(id) : Promise.resolve([HIDDEN]);
  }

  override async getJobSchedulers(): ReturnType<Adapter["getJobSchedulers"]> {
    const schedulers = await super.getJobSchedulers();
    if (this.#mayAct) return schedulers;
    return schedulers.map(({ template: _hidden, ...facts }) => facts);
  }

  override pause(): Promise<void> {
    return this.#run("queue.pause");
  }

  override resume(): Promise<void> {
    return this.#run("queue.resume");
  }

  override async empty(): Promise<void> {
    await this.#queue.drain(this.#byHand);
  }

  /**
   * Removes jobs through Sluice. BullMQ would also remove jobs that are parked in lanes, because it
   * takes them for delayed jobs.
   */
  override async clean(status: Cleaned): Promise<void> {
    const state = CLEANED.get(status);
    if (state === undefined) await refuse("Running jobs cannot be cleaned");
    else if (state === "failed") await this.#run("queue.purge", { all: true });
    else await this.#queue.removeJobs({ state }, this.#byHand);
  }

  override obliterate(): Promise<void> {
    return refuse(
      "A queue cannot be obliterated while workers use it. Empty it and clean its failed jobs instead",
    );
  }

  override async promoteAll(): Promise<void> {
    await this.#queue.rescheduleJobs({ state: "delayed" }, { delayMs: 0 }, this.#byHand);
  }

  override async addJob(
    name: string,
    data: unknown,
    { delay, ...rest }: Given = {},
  ): Promise<StoredJob> {
    const named = name === "" ? {} : { name };
    const due = delay === undefined ? {} : { delayMs: delay };
    const { id } = await this.#queue.enqueue(data, { ...named, ...due, ...rest });
    return (await super.getJob(id))!;
  }

  override removeJobScheduler(id: string): Promise<boolean> {
    return this.#queue.unschedule(id);
  }

  override get supportsJobSchedulerUpdate(): boolean {
    return false;
  }

  override get supportsJobSchedulerRun(): boolean {
    return false;
  }

  /** Returns false, because the bucket sets the rate. A BullMQ rate limit would have no effect. */
  override get supportsGlobalRateLimit(): boolean {
    return false;
  }

  /** Wraps a BullMQ job, so that changes to the job go through the Sluice queue. */
  #steered(job: StoredJob): StoredJob {
    const id = job.id!;
    const queue = this.#queue;
    const change = async (how: (ours: QueuedJob<unknown>) => Promise<boolean>): Promise<void> => {
      const ours = await queue.job(id);
      if (ours === undefined || !(await how(ours))) await refuse(MOVED_ON);
    };
    const changes: Partial<StoredJob> = {
      async retry(state = "failed") {
        if (state === "completed")
          await refuse("A completed job cannot run again. Enqueue a new one");
        // Calls the queue directly. The operation would also read the status of the queue, once for
        // each job of "Retry all".
        if ((await queue.replay(id)) === 0) await refuse(MOVED_ON);
      },
      remove: () => change((ours) => ours.remove()),
      promote: () => change((ours) => ours.runNow()),
      updateData: (data) => change((ours) => ours.update(data)),
      changeDelay: (delayMs) => change((ours) => ours.reschedule({ delayMs: Math.round(delayMs) })),
      async changePriority({ priority = 0 }) {
        const named = PRIORITIES[priority - 1] ?? (priority as unknown as Priority);
        if (!(await queue.reprioritise(id, named))) await refuse(MOVED_ON);
      },
    };
    return Object.assign(job, changes);
  }
}

/** Maps BullMQ's job states to Sluice's. */
const CLEANED: ReadonlyMap<string, "waiting" | "delayed" | "done" | "failed"> = new Map([
  ["wait", "waiting"],
  ["prioritized", "waiting"],
  ["paused", "waiting"],
  ["delayed", "delayed"],
  ["completed", "done"],
  ["failed", "failed"],
]);

const MOVED_ON =
  "This job cannot be changed now: it is running, has ended, was removed, or is the next run of a schedule";

async function refuse(why: string): Promise<never> {
  throw new HttpProblem(why === MOVED_ON ? "ERR_JOB_STATE" : "ERR_NOT_SUPPORTED", `${why}.`);
}

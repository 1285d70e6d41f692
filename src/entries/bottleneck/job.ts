import { DEFAULT_PRIORITY, PRIORITIES, readJobOptions, type JobOptions } from "./options.ts";

/** The error with which a limiter fails jobs. An error of the job itself is passed on unchanged. */
export class BottleneckError extends Error {
  override readonly name = "BottleneckError";
}

export type Status = "RECEIVED" | "QUEUED" | "RUNNING" | "EXECUTING" | "DONE";
export type Counts = Record<Exclude<Status, "DONE">, number> & { DONE?: number };
// oxlint-disable-next-line typescript/no-explicit-any -- jobs take any arguments
export type Task = (...args: any[]) => unknown;

/** The options of a job, with their defaults. */
interface RunOptions {
  readonly priority: number;
  readonly weight: number;
  readonly expiration: number | null;
  readonly id: string;
}

/** What event listeners receive about a job. */
export interface EventInfo {
  readonly args: readonly unknown[];
  readonly options: RunOptions;
}

/** One job, from `schedule` until its promise is settled. */
export interface Job {
  readonly task: Task;
  readonly args: readonly unknown[];
  readonly options: RunOptions;
  readonly promise: Promise<unknown>;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  retryCount: number;
}

/** @throws {@link InvalidOptionError} when an option can never work. */
export function createJob(task: Task, args: readonly unknown[], given: JobOptions): Job {
  const { priority, weight, expiration, id } = readJobOptions(given);
  const options: RunOptions = {
    priority: Number.isInteger(priority)
      ? Math.min(Math.max(priority!, 0), PRIORITIES - 1)
      : DEFAULT_PRIORITY,
    weight: weight ?? 1,
    expiration: expiration ?? null,
    id: id ?? `<no-id>-${randomId()}`,
  };
  let resolve!: Job["resolve"];
  let reject!: Job["reject"];
  const promise = new Promise<unknown>((onResult, onError) => {
    resolve = onResult;
    reject = onError;
  });
  return { task, args, options, promise, resolve, reject, retryCount: 0 };
}

export function randomId(): string {
  return Math.random().toString(36).slice(2);
}

/** The status of each unfinished job of one limiter. */
export class Statuses {
  readonly #order: readonly Status[];
  readonly #byId = new Map<string, Status>();

  constructor(isDoneTracked: boolean) {
    const unfinished: readonly Status[] = ["RECEIVED", "QUEUED", "RUNNING", "EXECUTING"];
    this.#order = isDoneTracked ? [...unfinished, "DONE"] : unfinished;
  }

  of(id: string): Status | null {
    return this.#byId.get(String(id)) ?? null;
  }

  set(id: string, status: Status): void {
    if (this.#order.includes(status)) this.#byId.set(String(id), status);
    else this.#byId.delete(String(id));
  }

  remove(id: string): boolean {
    return this.#byId.delete(String(id));
  }

  /** @throws {@link BottleneckError} when there is no such status. */
  ids(status?: Status): string[] {
    if (status === undefined || status === null) return [...this.#byId.keys()];
    if (!this.#order.includes(status)) {
      throw new BottleneckError(`status must be one of ${this.#order.join(", ")}`);
    }
    return [...this.#byId].filter(([, each]) => each === status).map(([id]) => id);
  }

  counts(): Counts {
    const counts = Object.fromEntries(this.#order.map((status) => [status, 0])) as Required<Counts>;
    for (const status of this.#byId.values()) counts[status] += 1;
    return counts;
  }

  /** The number of jobs that have not finished. */
  get unfinished(): number {
    let count = 0;
    for (const status of this.#byId.values()) if (status !== "DONE") count += 1;
    return count;
  }
}

/** The queued jobs of one limiter, the most urgent first, then in the order of their arrival. */
export class JobQueue {
  readonly #lists: Job[][] = Array.from({ length: PRIORITIES }, () => []);

  push(job: Job): void {
    this.#lists[job.options.priority]!.push(job);
  }

  first(): Job | undefined {
    return this.#lists.find((list) => list.length > 0)?.[0];
  }

  shift(): Job | undefined {
    return this.#lists.find((list) => list.length > 0)?.shift();
  }

  /** Removes the oldest job of the least urgent priority, from `priority` downwards. */
  dropFrom(priority: number): Job | undefined {
    return this.#lists
      .slice(priority)
      .findLast((list) => list.length > 0)
      ?.shift();
  }

  removeAll(): Job[] {
    return this.#lists.flatMap((list) => list.splice(0));
  }

  count(priority?: number): number {
    if (priority !== undefined && priority !== null) return this.#lists[priority]?.length ?? 0;
    return this.#lists.reduce((sum, list) => sum + list.length, 0);
  }
}

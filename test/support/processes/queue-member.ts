/** A process with a queue, and perhaps a worker: it does what messages ask, and tells of each attempt. */
import { setTimeout as pause } from "node:timers/promises";
import {
  createSluice,
  RetryAfter,
  type BatchOptions,
  type BucketOptions,
  type Job,
  type JobContext,
  type QueuedJob,
  type QueueOptions,
  type WorkerOptions,
} from "sluice";

/** What such a process is told, as JSON. */
export interface MemberSettings {
  readonly redis: string;
  readonly prefix: string;
  readonly bucket: BucketOptions;
  readonly queue?: Pick<QueueOptions, "keepDone" | "defaults"> | undefined;
  /** Without it, the process has no worker. */
  readonly worker?: (WorkerOptions & { readonly batch?: BatchOptions<MemberJob> }) | undefined;
}

/** The data of a job: what its first attempt does. */
export interface MemberJob {
  readonly name: string;
  readonly retryAfterMs?: number;
  readonly isFailing?: boolean;
  readonly takesMs?: number;
}

/** A method of the queue, or of one of its jobs: `["job.eta", "17"]`. */
export interface MemberRequest {
  readonly number: number;
  readonly call: string;
  readonly given: readonly unknown[];
}

/** What it sends: how an attempt began, on the process's monotonic clock; or an answer. */
export type MemberMessage =
  | { readonly name: string; readonly attempt: number; readonly atMs: number }
  | { readonly number: number; readonly answer: unknown }
  | { readonly number: number; readonly refusal: string };

const settings = JSON.parse(process.argv[2] ?? "{}") as MemberSettings;
const sluice = createSluice({ redis: settings.redis, prefix: settings.prefix });
const bucket = sluice.bucket("downstream", settings.bucket);
const queue = sluice.queue<MemberJob>("jobs", { ...settings.queue, bucket });

function tell(message: MemberMessage): void {
  process.send?.(message);
}

async function answer({ call, given }: MemberRequest): Promise<unknown> {
  if (call === "shiftClock") return globalThis.shiftClock?.(given[0] as number);
  const [where, method] = call.includes(".") ? call.split(".") : ["queue", call];
  const [first, ...rest] = given;
  if (where === "job") {
    const job = (await queue.job(first as string)) as QueuedJob<MemberJob>;
    return callOn(job, method!, rest);
  }
  return callOn(where === "bucket" ? bucket : queue, method!, given);
}

async function callOn(object: object, method: string, given: readonly unknown[]): Promise<unknown> {
  const found = (await Reflect.apply(
    Reflect.get(object, method) as () => unknown,
    object,
    given,
  )) as unknown;
  // A job's handle has methods, which no message can carry.
  return found === undefined ? undefined : (JSON.parse(JSON.stringify(found)) as unknown);
}

process.on("message", (text: string) => {
  const request = JSON.parse(text) as MemberRequest;
  const { number } = request;
  answer(request).then(
    (found) => tell({ number, answer: found }),
    (error: unknown) => tell({ number, refusal: String(error) }),
  );
});

async function handle(
  { data }: Job<MemberJob>,
  { attempt }: Pick<JobContext, "attempt">,
): Promise<void> {
  tell({ name: data.name, attempt, atMs: performance.now() });
  await pause(data.takesMs ?? 0);
  if (attempt > 1 && data.isFailing !== true) return;
  if (data.retryAfterMs !== undefined) throw new RetryAfter(data.retryAfterMs);
  if (data.isFailing !== undefined) throw new Error("the downstream says no");
}

const failed = (error: unknown): Error => error as Error;
if (settings.worker !== undefined) {
  const { batch, ...options } = settings.worker;
  if (batch === undefined) sluice.worker(queue, handle, options);
  else {
    sluice.worker(
      queue,
      (jobs, { contexts }) =>
        Promise.all(jobs.map((job, index) => handle(job, contexts[index]!).catch(failed))),
      { ...options, batch },
    );
  }
}
process.send?.("ready");

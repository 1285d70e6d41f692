import { createHash, randomUUID } from "node:crypto";
import type { Queue } from "../../queue/queue.ts";
import type { AttemptName, EndpointName } from "../../core/stores/webhooks/store.ts";
import { keyOf } from "../names.ts";

/** Why a message is sent: since it was sent, as a test, or since somebody asked for it again. */
export type Purpose = "send" | "test" | "replay";

/** One attempt of one message at one endpoint. What is sent, and where, is read when it begins. */
export interface DeliveryJob extends AttemptName {
  /** 1 for the first one. */
  readonly attempt: number;
  readonly purpose: Purpose;
  /** Tells the attempts of one sending from those of another. */
  readonly series: string;
  /** Who asked for a replay. */
  readonly by?: string | undefined;
}

/** One attempt at an ordered endpoint, of what is then at the head of its line. */
export interface LineJob extends EndpointName {
  /** The step of the line that it is; it does nothing once another is next. */
  readonly step: string;
  /** How many messages go together at most. */
  readonly most: number;
}

/** What waits in the queue of a sender. */
export type WebhookJob = DeliveryJob | LineJob;

export type DeliveryQueue = Queue<WebhookJob, undefined>;

/** How often the queue tries an attempt that the sender itself fails at: over some hours. */
export const OUR_TRIES = 20;

/** How many jobs are stored at a time: each time has the sluice's time limit. */
const AT_ONCE = 1_000;

/** The attempts of the first sending, which has a series of its own for each message and endpoint. */
export const FIRST_SERIES = "1";

export function newSeries(): string {
  return randomUUID();
}

/**
 * The same for the same attempt, whoever stores it. It says which copy of the message is meant: BullMQ stores no job with the
 * id of one that it still keeps, and it may keep a job for longer than its message.
 */
export function jobIdOf({ tenant, endpoint, message, copy, series, attempt }: DeliveryJob): string {
  const ofCopy = copy === undefined ? [] : [copy];
  return `d${digestOf([tenant, endpoint, message, series, ...ofCopy])}.${attempt}`;
}

function digestOf(names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("base64url").slice(0, 24);
}

/** Stores the step of a line that is next; one that is stored already stays as it is. */
export async function storeStep(
  queue: DeliveryQueue,
  job: LineJob,
  delayMs: number = 0,
): Promise<void> {
  const id = `o${digestOf([job.tenant, job.endpoint])}.${job.step}`;
  const options = { id, key: keyOf(job), delayMs: Math.ceil(delayMs), attempts: OUR_TRIES };
  await queue.enqueue(job, options);
}

/** Stores first attempts; those that are stored already stay as they are. */
export async function storeFirst(
  queue: DeliveryQueue,
  jobs: readonly DeliveryJob[],
  delayMs: (job: DeliveryJob) => number,
): Promise<void> {
  for (let begin = 0; begin < jobs.length; begin += AT_ONCE) {
    const some = jobs.slice(begin, begin + AT_ONCE);
    await queue.enqueueMany(some, (_data, at) => {
      const job = some[at]!;
      return {
        id: jobIdOf(job),
        key: keyOf(job),
        delayMs: delayMs(job),
        attempts: OUR_TRIES,
        ...(job.purpose === "send" ? undefined : { priority: "low" as const }),
      };
    });
  }
}

/** Stores a later attempt: it yields to first ones. */
export async function storeLater(
  queue: DeliveryQueue,
  job: DeliveryJob,
  { delayMs, isHeld = false }: { delayMs: number; isHeld?: boolean },
): Promise<void> {
  // One that is held back is the same attempt, and its own job still runs.
  const id = isHeld ? `${jobIdOf(job)}.${randomUUID()}` : jobIdOf(job);
  const options = { id, key: keyOf(job), delayMs: Math.ceil(delayMs), attempts: OUR_TRIES };
  await queue.enqueue(job, { ...options, priority: "low" });
}

/** A wait of the schedule, a fifth more or less, so that not all come at once. */
export function jittered(ms: number, random: () => number = Math.random): number {
  return Math.round(ms * (0.8 + 0.4 * random()));
}

import { createHash, randomUUID } from "node:crypto";
import type { Queue } from "../../queue/queue.ts";
import type { AttemptName, EndpointName } from "../../stores/redis/scripts/webhooks/webhooks.ts";
import { keyOf } from "../names.ts";

/** Why a message is sent: as a new message, as a test, or as a replay. */
export type Purpose = "send" | "test" | "replay";

/**
 * One attempt to send one message to one endpoint. The content and the destination are read when
 * the attempt begins.
 */
export interface DeliveryJob extends AttemptName {
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  readonly purpose: Purpose;
  /** Distinguishes the attempts of one sending from the attempts of another, such as a replay. */
  readonly series: string;
  /** The user who requested the replay. Undefined for all other jobs. */
  readonly by?: string | undefined;
}

/** One attempt at an ordered endpoint, for the messages at the head of its line. */
export interface LineJob extends EndpointName {
  /** The step of the line. The job does nothing if a later step is already next. */
  readonly step: string;
  /** The most messages in one request. */
  readonly most: number;
}

/** A job in the queue of a sender. */
export type WebhookJob = DeliveryJob | LineJob;

export type DeliveryQueue = Queue<WebhookJob, undefined>;

/**
 * How often the queue retries a job after a fault of the sender itself. These retries take some
 * hours.
 */
export const OUR_TRIES = 20;

/** The most jobs that one request stores. Each request has the sluice's time limit. */
const AT_ONCE = 1_000;

/** The series in which a message is first sent to each endpoint. */
export const FIRST_SERIES = "1";

export function newSeries(): string {
  return randomUUID();
}

/**
 * Returns the same job id for the same attempt, in every process. The id includes the copy of the
 * message, because BullMQ may keep a job longer than its message, and stores no second job with the
 * same id.
 */
export function jobIdOf({ tenant, endpoint, message, copy, series, attempt }: DeliveryJob): string {
  const ofCopy = copy === undefined ? [] : [copy];
  return `d${digestOf([tenant, endpoint, message, series, ...ofCopy])}.${attempt}`;
}

function digestOf(names: readonly string[]): string {
  return createHash("sha256").update(names.join("\0")).digest("base64url").slice(0, 24);
}

/** Stores the next step of a line, unless it is already stored. */
export async function storeStep(
  queue: DeliveryQueue,
  job: LineJob,
  delayMs: number = 0,
): Promise<void> {
  const id = `o${digestOf([job.tenant, job.endpoint])}.${job.step}`;
  const options = { id, key: keyOf(job), delayMs: Math.ceil(delayMs), attempts: OUR_TRIES };
  await queue.enqueue(job, options);
}

/** Stores first attempts, unless they are already stored. */
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

/** Stores a later attempt, with a lower priority than first attempts. */
export async function storeLater(
  queue: DeliveryQueue,
  job: DeliveryJob,
  { delayMs, isHeld = false }: { delayMs: number; isHeld?: boolean },
): Promise<void> {
  // A held-back job is the same attempt as the job that still runs, so the held-back job needs
  // another id.
  const id = isHeld ? `${jobIdOf(job)}.${randomUUID()}` : jobIdOf(job);
  const options = { id, key: keyOf(job), delayMs: Math.ceil(delayMs), attempts: OUR_TRIES };
  await queue.enqueue(job, { ...options, priority: "low" });
}

/** Varies a delay by up to a fifth, so that retries do not arrive all at once. */
export function jittered(ms: number, random: () => number = Math.random): number {
  return Math.round(ms * (0.8 + 0.4 * random()));
}

/** The queue of many tenants: who they are, what becomes of each job, and what a tool may remove. */
import type { EnqueueOptions } from "sluice";

export const TENANTS = 200;
/** The first tenants always have jobs that wait; the others have one now and then. */
export const LARGE = 4;
/** The rate of the tenants' bucket, in calls a second. The producer offers a little more. */
export const TENANTS_PER_SECOND = 100;

/** What becomes of a job. */
export type Fate =
  | "done"
  /** It fails on its first attempt, and is done on its second. */
  | "retried"
  | "thrown"
  | "delayed"
  /** It may expire. */
  | "hasty"
  /** It ends as a dead letter. */
  | "discarded"
  | "given up";

const FATES: readonly Fate[] = ["retried", "thrown", "delayed", "hasty", "discarded", "given up"];
/** A number after each round of fates, for a prime number of them. */
const FATES_EVERY = 23;

/** A job's data. */
export interface TenantJob {
  readonly number: number;
  readonly tenant: string;
  readonly fate: Fate;
}

export const tenantOf = (index: number): string => `t${index}`;
export const isLarge = (tenant: string): boolean =>
  tenant.startsWith("t") && Number(tenant.slice(1)) < LARGE;

/** The tenant whose weight changes. */
const GOLD = tenantOf(0);
export const MOST_WEIGHT = 3;

export function weightOf(tenant: string, gold: number): number {
  return tenant === GOLD ? gold : 1;
}

export const DELAY_MS = 700;
export const RETRY_MS = 150;
const MAX_WAIT_MS = 2_000;
const BACKOFF = { baseMs: 50, maxMs: 300 };
/** Jobs without a key are a lane of their own. */
const KEYLESS_EVERY = 29;
export const KEYLESS = "";

export function fateOf(number: number): Fate {
  return FATES[number % FATES_EVERY] ?? "done";
}

/** The options of a job beside its key. */
export function optionsOf(fate: Fate, number: number): EnqueueOptions {
  return {
    backoff: BACKOFF,
    ...(fate === "given up" && { attempts: 1 }),
    ...(fate === "delayed" && { delayMs: DELAY_MS }),
    ...(fate === "hasty" && { maxWaitMs: MAX_WAIT_MS }),
    ...(number % 31 === 0 && { priority: "high" }),
  };
}

export function keyOf(tenant: string, number: number): string | undefined {
  return !isLarge(tenant) && number % KEYLESS_EVERY === 0 ? undefined : tenant;
}

/** Whether a handler that was called for this attempt has done the job. */
export function isDoneBy(fate: Fate, attempt: number): boolean {
  if (fate === "retried" || fate === "thrown") return attempt > 1;
  return fate !== "discarded" && fate !== "given up";
}

export const DISCARD_REASON = "can never be done";
export const GIVE_UP_REASON = "fails on its only attempt";

/** Whether a dead letter of this fate may have this reason. */
export function mayDie(fate: Fate, reason: string): boolean {
  if (fate === "discarded") return reason === DISCARD_REASON;
  if (fate === "given up") return reason === GIVE_UP_REASON;
  return fate === "hasty" && reason.startsWith("Expired: ");
}

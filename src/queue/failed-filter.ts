import * as z from "zod";
import { KEY, readOptions, wholeNumber } from "../core/options.ts";

/** Which of the failed jobs are meant: those for which all holds that is named. */
export interface FailedFilter {
  /** The key that the job is for. */
  readonly key?: string | undefined;
  /** It has failed then or later: a date, or ms since 1970. */
  readonly since?: Date | number | undefined;
  /** What its reason contains, or matches: `"Expired:"`, `/timeout/i`. */
  readonly reason?: string | RegExp | undefined;
  /** How many at most, the newest first. Defaults to 100 for `failed()`, and to no limit for `replay()` and `purge()`. */
  readonly limit?: number | undefined;
}

/** A filter that was read: times are numbers. */
export interface ReadFilter {
  readonly key: string | undefined;
  readonly sinceMs: number;
  readonly reason: string | RegExp | undefined;
  readonly limit: number | undefined;
}

/** What a filter looks at. */
export interface FailedFacts {
  readonly key: string | undefined;
  readonly reason: string;
}

const SINCE_ERROR = { error: "give a date, or milliseconds since 1970" };
const REASON_ERROR = { error: "give a part of the reason, or a regular expression" };
const FILTER = z.strictObject({
  key: KEY.optional(),
  // Of a value that is of the right type and out of bounds, the bound tells, and not the union.
  since: z
    .union([z.date(), z.number().min(0, SINCE_ERROR).max(8.64e15, SINCE_ERROR)], SINCE_ERROR)
    .optional(),
  reason: z.union([z.string().min(1, REASON_ERROR), z.instanceof(RegExp)], REASON_ERROR).optional(),
  limit: wholeNumber(1, 1_000_000_000, "jobs").optional(),
});

/** @throws {@link InvalidOptionError} naming what can never work. */
export function readFilter(where: string, given: unknown): ReadFilter {
  const { key, since, reason, limit } = readOptions(where, FILTER, given);
  return { key, sinceMs: Number(since ?? 0), reason, limit };
}

/** Whether a job is meant; its time is not looked at. */
export function isMeant({ key, reason }: ReadFilter, job: FailedFacts): boolean {
  if (key !== undefined && job.key !== key) return false;
  if (reason === undefined) return true;
  // `search` starts anew each time, whatever the flags; `test` goes on where it ended before.
  return typeof reason === "string" ? job.reason.includes(reason) : job.reason.search(reason) >= 0;
}

/** Formats results for people. */
import type { Key } from "../core/key-path.ts";
import type { JobExplanation, WaitsFor } from "../queue/forecast/explain.ts";
import type { JobEta } from "../queue/forecast/forecast.ts";
import type { SetBy } from "../throttle/bucket/facts/status.ts";

interface ShownTable {
  readonly heads: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** The output of a command: lines and tables. */
export type Shown = string | readonly (string | ShownTable)[];

/** Formats names and values, one pair per line: `"cap:        100/s"`. */
export function factLines(facts: readonly (readonly [string, string])[], width: number): string[] {
  return facts.map(([name, value]) => `${`${name}:`.padEnd(width)}${value}`);
}

/** Converts values that JSON does not have: a bigint to text, and a time without an end to `"forever"`. */
export function sayInJson(_name: string, value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  return value === Infinity ? "forever" : value;
}

/** Formats ms: `1500` becomes `"1.5 s"`. */
export function duration(ms: number): string {
  if (ms === Infinity) return "forever";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const units = [
    ["d", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
  ] as const;
  const [unit, length] = units.find(([, unitMs]) => ms >= unitMs)!;
  return `${Number((ms / length).toFixed(1))} ${unit}`;
}

/** Formats a rate with at most two decimals. */
export function perSecond(rate: number | undefined): string {
  return rate === undefined ? "-" : String(Number(rate.toFixed(2)));
}

export function timeText(ms: number | undefined): string {
  return ms === undefined ? "-" : new Date(ms).toISOString();
}

/** Formats the key of a job. */
export function keyText(key: Key | undefined): string {
  return key === undefined ? "-" : typeof key === "string" ? key : JSON.stringify(key);
}

/** Formats a count with its noun: `"1 job"`, `"2 jobs"`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** Formats who set an override, when it was set and how long it lasts. */
export function byText({ by, reason, atMs, endsInMs }: SetBy): string {
  const why = reason === undefined ? "" : `, "${reason}"`;
  const end = endsInMs === Infinity ? "until it is changed" : `for another ${duration(endsInMs)}`;
  return `by ${by}${why}, since ${new Date(atMs).toISOString()}, ${end}`;
}

/** The text for each thing that a job can wait for. */
export const WAIT_REASONS: Readonly<Record<WaitsFor, string>> = {
  delay: "its time has not come",
  retry: "its next attempt is not due yet",
  "no worker": "no worker is alive",
  "queue paused": "the queue is paused",
  "key paused": "its key is paused",
  "bucket paused": "the bucket is paused",
  "downstream away": "the downstream is unreachable",
  "key away": "the downstream of its key is unreachable",
  cooldown: "the bucket is cooling down",
  limit: "a limit of the bucket has no room",
  key: "a limit of its key has no room",
  lease: "as many calls are running as may at once",
  lane: "there is room, and it waits for its turn and a worker",
};

/**
 * Explains why a job waits: `"a limit of the bucket has no room (100/s), until
 * 2026-01-01T00:00:00.000Z"`.
 */
export function whySentence(why: JobExplanation | undefined): string {
  if (why === undefined) return "it has started in the meantime";
  const { waitsFor, limit, untilMs } = why;
  const which = limit === undefined ? "" : ` (${limit})`;
  const end = untilMs === undefined || untilMs === Infinity ? "" : `, until ${timeText(untilMs)}`;
  return `${WAIT_REASONS[waitsFor]}${which}${end}`;
}

/** Explains why a job waits. Adds its position and expected start if other jobs start before it. */
export function whyText(why: JobExplanation | undefined, eta?: JobEta): string {
  if (why === undefined) return "it runs, or has ended";
  const { waitsFor, limit, untilMs } = why;
  const what = limit === undefined ? waitsFor : `${waitsFor}: ${limit}`;
  // The next slot of the limit goes to another job.
  if (eta?.startsInMs !== undefined && eta.position > 0) {
    const others = eta.position === 1 ? "1 job starts" : `${eta.position} jobs start`;
    return `${what}; ${others} before it, which is expected to start in ${duration(eta.startsInMs)}`;
  }
  const end = untilMs === undefined || untilMs === Infinity ? "" : `, until ${timeText(untilMs)}`;
  return `${what}${end}`;
}

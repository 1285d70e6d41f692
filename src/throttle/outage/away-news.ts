import { namedOf } from "../../core/key-path.ts";

/** What a breaker has found of the downstream of a bucket, or of one key. */
export interface AwayNews {
  /** Whether it is back; else it is away. */
  readonly isBack: boolean;
  /** For how many ms nothing starts; 0 if it is back. */
  readonly forMs: number;
  /** By what it is away: `"TypeError: fetch failed (connect ECONNREFUSED …)"`. Undefined if it is back. */
  readonly reason: string | undefined;
  /** Whether another process has found it. */
  readonly isHeard: boolean;
}

export const BACK: AwayNews = { isBack: true, forMs: 0, reason: undefined, isHeard: false };
export const ELSEWHERE = "another process found it away";

export function wordsOfOpen(
  bucket: string,
  key: string | undefined,
  { failures, reason }: { readonly failures: number; readonly reason: string },
): string {
  const what = `is away, by ${failures} failures in a row (${reason}).`;
  const then = "one at a time tries, and their attempts do not count meanwhile";
  return key === undefined
    ? `${whose(bucket, key)} ${what} Calls wait; of jobs, ${then}.`
    : `${whose(bucket, key)} ${what} Of its jobs, ${then}; other keys go on.`;
}

export function wordsOfClose(bucket: string, key: string | undefined, reason: string): string {
  return `${whose(bucket, key)} answers again (${reason}).`;
}

function whose(bucket: string, text: string | undefined): string {
  if (text === undefined) return `The downstream of bucket "${bucket}"`;
  const { key, keys } = namedOf(text);
  return `Key ${JSON.stringify(key ?? keys)} of bucket "${bucket}": its downstream`;
}

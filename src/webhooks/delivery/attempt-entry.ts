import type { Outcome } from "./outcome.ts";
import type { Purpose } from "../sending/jobs.ts";

/** One attempt in the log: about 200 bytes plus the start of the reply. */
export interface Attempt {
  /** The id of the message. */
  readonly message: string;
  readonly endpoint: string;
  /** When the attempt ended, in ms since 1970. */
  readonly atMs: number;
  /** The number of the attempt, from 1. */
  readonly attempt: number;
  readonly purpose: Purpose;
  readonly outcome: Outcome;
  /** The status of the reply; undefined if there was none. */
  readonly status?: number | undefined;
  readonly durationMs: number;
  /** The first 1,024 bytes of the reply, without control characters. */
  readonly answer: string;
  /** The error, as the tenant may see it. */
  readonly error?: string | undefined;
  /** The user who requested the replay. Undefined if the attempt is no replay. */
  readonly by?: string | undefined;
}

/** Parses an attempt from its stored form. */
export function readAttempt(message: string, text: string): Attempt {
  return { message, ...(JSON.parse(text) as Omit<Attempt, "message">) };
}

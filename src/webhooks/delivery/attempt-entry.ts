import type { Outcome } from "./outcome.ts";
import type { Purpose } from "../sending/jobs.ts";

/** One attempt, as the log has it: about 200 bytes and the first of its answer. */
export interface Attempt {
  /** The id of its message. */
  readonly message: string;
  readonly endpoint: string;
  /** When it ended, in ms since 1970. */
  readonly atMs: number;
  /** 1 for the first one. */
  readonly attempt: number;
  readonly purpose: Purpose;
  readonly outcome: Outcome;
  /** The status of the answer; undefined if there was none. */
  readonly status?: number | undefined;
  readonly durationMs: number;
  /** The first 1,024 bytes of the answer, without control characters. */
  readonly answer: string;
  /** What went wrong, as its tenant may see it. */
  readonly error?: string | undefined;
  /** Who asked for it, of a replay. */
  readonly by?: string | undefined;
}

/** An attempt as it is stored beside its message. */
export function readAttempt(message: string, text: string): Attempt {
  return { message, ...(JSON.parse(text) as Omit<Attempt, "message">) };
}

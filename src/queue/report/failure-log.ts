import { onOneLine, withoutPasswords, withoutSecrets, withoutStop } from "../../core/describe.ts";
import type { Logger } from "../../core/logger.ts";
import { readErrorFacts } from "../failure.ts";
import type { Job } from "../job.ts";

/** An attempt that has failed, and what comes next. */
interface FailedAttempt {
  readonly job: Pick<Job<unknown>, "id" | "key" | "name">;
  readonly attempt: number;
  readonly attempts: number;
  readonly error: Error;
  /** What becomes of the job. */
  readonly next:
    | { readonly is: "retry"; readonly inMs: number }
    | { readonly is: "dead" }
    | { readonly is: "spared" };
}

/** Logs failed attempts as warnings and dead letters as errors, some of them. */
export interface FailureLog {
  note(failed: FailedAttempt): void;
  /** Says how many were left out since it was last said. */
  close(): void;
}

/** In each window of this length, so many lines of either kind are logged; at its end, how many more there were. */
const WINDOW_MS = 10_000;
const MOST_LINES = 10;
/** How much of a message is logged. */
const LONGEST_REASON = 500;

interface Count {
  lines: number;
  unsaid: number;
}

const KINDS = { warn: "failed attempts", error: "dead letters" } as const;

export function createFailureLog(queue: string, logger: Logger): FailureLog {
  const counts: Record<keyof typeof KINDS, Count> = {
    warn: { lines: 0, unsaid: 0 },
    error: { lines: 0, unsaid: 0 },
  };
  let timer: NodeJS.Timeout | undefined;

  /** Of many jobs that fail at once, a log needs to know that they do, and not each. */
  function mayLog(level: keyof typeof KINDS): boolean {
    timer ??= setTimeout(endWindow, WINDOW_MS).unref();
    const count = counts[level];
    if (count.lines >= MOST_LINES) {
      count.unsaid += 1;
      return false;
    }
    count.lines += 1;
    return true;
  }

  function endWindow(): void {
    clearTimeout(timer);
    timer = undefined;
    for (const level of ["warn", "error"] as const) {
      const { unsaid } = counts[level];
      counts[level] = { lines: 0, unsaid: 0 };
      if (unsaid === 0) continue;
      const what = `${unsaid} more ${KINDS[level]} of queue "${queue}" were not logged`;
      logger[level]({ queue, unsaid }, `${what}: ${MOST_LINES} are in ${WINDOW_MS / 1_000} s.`);
    }
  }

  return {
    note({ job, attempt, attempts, error, next }) {
      const level = next.is === "dead" ? "error" : "warn";
      if (!mayLog(level)) return;
      const { id, key, name } = job;
      const reason = withoutPasswords(onOneLine(String(error.message).slice(0, LONGEST_REASON)));
      const facts = withoutSecrets("error", readErrorFacts(error)) as object;
      const which = [name, key === undefined ? undefined : `key ${JSON.stringify(key)}`];
      const known = which.filter((each) => each !== undefined).join(", ");
      const what = `Job ${id}${known === "" ? "" : ` (${onOneLine(known)})`} of queue "${queue}"`;
      const text = `${what} failed in attempt ${attempt} of ${attempts}: ${withoutStop(reason)}; ${wordsFor(next)}.`;
      logger[level]({ queue, job: id, key, name, attempt, attempts, reason, ...facts }, text);
    },
    close: endWindow,
  };
}

function wordsFor(next: FailedAttempt["next"]): string {
  if (next.is === "dead") return "kept as a dead letter";
  if (next.is === "spared") return "not counted, and tried again once the downstream is back";
  return `tried again in ${inWords(next.inMs)}`;
}

const UNITS = [
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
] as const;

/** `850 ms`, `2.1 s`, `12 min`. */
function inWords(ms: number): string {
  const [unit, length] = UNITS.find(([, least]) => ms >= least) ?? ["ms", 1];
  const count = ms / length;
  return `${count < 10 && length > 1 ? count.toFixed(1) : Math.round(count)} ${unit}`;
}

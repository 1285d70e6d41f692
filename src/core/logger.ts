import { isThenable, reasonOf } from "./describe.ts";

/** Takes warnings and errors that no caller waits for; a pino logger fits. */
export interface Logger {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/**
 * A user's logger, from which no error comes: thrown where nobody waits, it would end the process. What it failed to log
 * goes to the other one.
 */
export function guarded(logger: Logger, instead: Logger): Logger {
  function log(level: keyof Logger, facts: object, message: string): void {
    const sayInstead = (error: unknown): void => {
      const problem = `The logger failed: ${reasonOf(error)}; it was to log: ${message}`;
      try {
        instead[level](facts, problem);
      } catch {
        // The console is broken too: nobody is left who could be told.
      }
    };
    try {
      const logged: unknown = logger[level](facts, message);
      // An async one may reject later.
      if (isThenable(logged)) logged.then(undefined, sayInstead);
    } catch (error) {
      sayInstead(error);
    }
  }

  return {
    warn: (facts, message) => log("warn", facts, message),
    error: (facts, message) => log("error", facts, message),
  };
}

const SILENT_MS = 10_000;
/** Of more messages than this, the oldest are forgotten. */
const MOST_REMEMBERED = 100;

/** When a message was last logged, and how often it has been left out since. */
interface Logged {
  readonly atMs: number;
  unsaid: number;
}

/**
 * A logger for what may go wrong with every call. It logs a warning once in ten seconds; the next one has the number of
 * those left out as `unsaid`. Warnings that differ only by their `reason`, which may contain a key, count as the same.
 */
export function sampled(logger: Logger, nowMs: () => number): Logger {
  const logged = new Map<string, Logged>();

  return {
    warn(facts, message) {
      const what = "reason" in facts ? message.replace(String(facts.reason), "") : message;
      const before = logged.get(what);
      const atMs = nowMs();
      if (before !== undefined && atMs < before.atMs + SILENT_MS) {
        before.unsaid += 1;
        return;
      }
      logged.delete(what);
      logged.set(what, { atMs, unsaid: 0 });
      if (logged.size > MOST_REMEMBERED) logged.delete(logged.keys().next().value!);
      const { unsaid = 0 } = before ?? {};
      logger.warn(unsaid === 0 ? facts : { ...facts, unsaid }, message);
    },
    error: (facts, message) => logger.error(facts, message),
  };
}

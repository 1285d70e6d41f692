import { isThenable, reasonOf } from "./describe.ts";

/** Receives warnings and errors that no caller receives. A pino logger can be used. */
export interface Logger {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/**
 * Wraps a user's logger so that it never throws, because an error in a callback would end the process. Messages that
 * the logger fails to log go to `instead`.
 */
export function guarded(logger: Logger, instead: Logger): Logger {
  function log(level: keyof Logger, facts: object, message: string): void {
    const logInstead = (error: unknown): void => {
      const problem = `The logger failed: ${reasonOf(error)}. The lost message: ${message}`;
      try {
        instead[level](facts, problem);
      } catch {
        // The replacement logger failed too, so the message is lost.
      }
    };
    try {
      const logged: unknown = logger[level](facts, message);
      // An async logger returns a promise, which may reject later.
      if (isThenable(logged)) logged.then(undefined, logInstead);
    } catch (error) {
      logInstead(error);
    }
  }

  return {
    warn: (facts, message) => log("warn", facts, message),
    error: (facts, message) => log("error", facts, message),
  };
}

const SILENT_MS = 10_000;
/** The most messages that are remembered. When there are more, the oldest are dropped. */
const MOST_REMEMBERED = 100;

/** The time when a message was last logged, and how many repetitions were suppressed since then. */
interface Logged {
  readonly atMs: number;
  unsaid: number;
}

/**
 * Wraps a logger for problems that every call may have. Each warning is logged at most once in ten seconds. The next
 * warning states the number of suppressed repetitions as `unsaid`. Warnings that differ only in their `reason`, which
 * may contain a key, count as the same warning.
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

import { isThenable, reasonOf } from "./describe.ts";

/** Receives warnings and errors that reach no caller. A pino logger fits. */
export interface Logger {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

/**
 * Wraps a user's logger so that it never throws. An error in a callback would end the process. Failed messages go to
 * `instead`.
 */
export function guarded(logger: Logger, instead: Logger): Logger {
  function log(level: keyof Logger, facts: object, message: string): void {
    const logInstead = (error: unknown): void => {
      const problem = `The logger failed: ${reasonOf(error)}. The lost message: ${message}`;
      try {
        instead[level](facts, problem);
      } catch {
        // The console is broken too, so the message is lost.
      }
    };
    try {
      const logged: unknown = logger[level](facts, message);
      // An async logger may reject later.
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
/** The most remembered messages. Beyond that, the oldest are dropped. */
const MOST_REMEMBERED = 100;

/** When a message was last logged, and how often it was suppressed since. */
interface Logged {
  readonly atMs: number;
  unsaid: number;
}

/**
 * A logger for problems that every call may have. Logs each warning once in ten seconds. The next one states the number
 * of suppressed ones as `unsaid`. Warnings that differ only by their `reason`, which may contain a key, count as the
 * same.
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

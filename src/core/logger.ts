/** Where warnings and errors go that no caller waits for; a pino logger fits. */
export interface Logger {
  warn(facts: object, message: string): void;
  error(facts: object, message: string): void;
}

const SILENT_MS = 10_000;
/** Of more than so many, those that were said first are forgotten. */
const MOST_REMEMBERED = 100;

interface Said {
  readonly atMs: number;
  unsaid: number;
}

/**
 * A logger for what may go wrong with every call: it warns of the same once in ten seconds, and then tells by `unsaid`
 * how often it did not. Reasons do not count: they may name a key, or hold a whole answer.
 */
export function sampled(logger: Logger, nowMs: () => number): Logger {
  const said = new Map<string, Said>();

  return {
    warn(facts, message) {
      const what = "reason" in facts ? message.replace(String(facts.reason), "") : message;
      const before = said.get(what);
      const atMs = nowMs();
      if (before !== undefined && atMs < before.atMs + SILENT_MS) {
        before.unsaid += 1;
        return;
      }
      said.delete(what);
      said.set(what, { atMs, unsaid: 0 });
      if (said.size > MOST_REMEMBERED) said.delete(said.keys().next().value!);
      const { unsaid = 0 } = before ?? {};
      logger.warn(unsaid === 0 ? facts : { ...facts, unsaid }, message);
    },
    error: (facts, message) => logger.error(facts, message),
  };
}

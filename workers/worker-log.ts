import { pino, type Logger } from "pino";

/** JSON lines on stdout. */
export function createWorkerLog(level: string): Logger {
  return pino({ level, serializers: { error: describeError } });
}

/** An error of Redis carries the command that failed, with all its arguments: payloads too. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack } = error;
  const code = "code" in error ? error.code : undefined;
  return { name, message, code, stack };
}

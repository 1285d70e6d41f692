import { pino, type DestinationStream, type Logger } from "pino";

const CENSORED = "[redacted]";
/** Blanking out shorter ones would make logs unreadable, and hide nothing. */
const SHORTEST_SECRET = 4;
/** Of whatever is logged, however deep: pino's own redaction needs to know each path. */
const SECRET_FIELD = /"(api_?key|authorization|client_secret|cookie|password)":"(?:[^"\\]|\\.)*"/gi;

/** JSON lines on stdout, in which neither these secrets nor fields that are known to hold some can be read. */
export function createWorkerLog(
  level: string,
  secrets: readonly string[] = [],
  destination?: DestinationStream,
): Logger {
  const texts = secrets
    .filter(({ length }) => length >= SHORTEST_SECRET)
    .toSorted((a, b) => b.length - a.length)
    // As they stand within JSON.
    .map((secret) => JSON.stringify(secret).slice(1, -1));
  const options = {
    level,
    serializers: { error: describeError, err: describeError },
    hooks: {
      streamWrite(line: string) {
        const text = line.replaceAll(SECRET_FIELD, `"$1":"${CENSORED}"`);
        return texts.reduce((rest, secret) => rest.replaceAll(secret, CENSORED), text);
      },
    },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}

/** An error of Redis carries the command that failed, with all its arguments; one of a client its request. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack } = error;
  const code = "code" in error ? error.code : undefined;
  return { name, message, code, stack };
}

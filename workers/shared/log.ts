import { pino, type DestinationStream, type Logger } from "pino";

const CENSORED = "[redacted]";
/** Hiding shorter secrets would make logs unreadable and protect nothing. */
const SHORTEST_SECRET = 4;
const SECRET_NAME = String.raw`(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[-_]?key|(?:access|refresh)_token|(?:client|signing|webhook)?_?secret|password|passphrase|stripe-signature`;
const STRING = String.raw`"(?:[^"\\]|\\.)*"`;
/**
 * Finds secrets at any depth of a log line; pino's own redaction needs each path. Matches a field with its
 * value or values, or a name and a value side by side, as in raw headers.
 */
const SECRET_FIELD = new RegExp(
  String.raw`"(${SECRET_NAME})"([:,])(?:${STRING}|\[(?:${STRING},?)*\])`,
  "gi",
);
/** A header line in the text of a request, inside JSON. */
const HEADER_LINE = new RegExp(String.raw`(${SECRET_NAME}): (?:[^"\\]|\\[^rn])+`, "gi");
/** User and password in a URL. */
const USER_IN_URL = /(?<=:\/\/)[^/\s"@\\]+(?=@)/g;

/** Writes JSON lines to stdout; redacts these secrets and all fields that are known to hold secrets. */
export function createWorkerLog(
  level: string,
  secrets: readonly string[] = [],
  destination?: DestinationStream,
): Logger {
  const texts = secrets
    .filter(({ length }) => length >= SHORTEST_SECRET)
    .toSorted((a, b) => b.length - a.length)
    // Escaped as in JSON.
    .map((secret) => JSON.stringify(secret).slice(1, -1));
  const options = {
    level,
    serializers: { error: describeError, err: describeError },
    hooks: {
      streamWrite(line: string) {
        const text = line
          .replaceAll(SECRET_FIELD, `"$1"$2"${CENSORED}"`)
          .replaceAll(HEADER_LINE, `$1: ${CENSORED}`)
          .replaceAll(USER_IN_URL, CENSORED);
        return texts.reduce((rest, secret) => rest.replaceAll(secret, CENSORED), text);
      },
    },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}

/** Leaves out other properties: a Redis error carries the failed command with its arguments, a client's error its request. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack } = error;
  const code = "code" in error ? error.code : undefined;
  return { name, message, code, stack };
}

import { pino, type DestinationStream, type Logger } from "pino";

const CENSORED = "[redacted]";
/** Secrets shorter than this are not redacted, because that would make logs unreadable and protect nothing. */
const SHORTEST_SECRET = 4;
const SECRET_NAME = String.raw`(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[-_]?key|(?:access|refresh)_token|(?:client|signing|webhook)?_?secret|password|passphrase|stripe-signature`;
const STRING = String.raw`"(?:[^"\\]|\\.)*"`;
/**
 * Finds secrets at any depth of a log line. Pino's own redaction is not used, because it needs the path of each field.
 * Matches a field with its value or list of values, or a name and a value side by side, as in raw headers.
 */
const SECRET_FIELD = new RegExp(
  String.raw`"(${SECRET_NAME})"([:,])(?:${STRING}|\[(?:${STRING},?)*\])`,
  "gi",
);
/** Finds a header line with a secret in the text of a request, inside JSON. */
const HEADER_LINE = new RegExp(String.raw`(${SECRET_NAME}): (?:[^"\\]|\\[^rn])+`, "gi");
/** Finds the user and password in a URL. */
const USER_IN_URL = /(?<=:\/\/)[^/\s"@\\]+(?=@)/g;

/**
 * Creates a logger that writes JSON lines to stdout. Redacts the given secrets, and all fields that are known to
 * contain secrets.
 */
export function createWorkerLog(
  level: string,
  secrets: readonly string[] = [],
  destination?: DestinationStream,
): Logger {
  const texts = secrets
    .filter(({ length }) => length >= SHORTEST_SECRET)
    .toSorted((a, b) => b.length - a.length)
    // Escapes each secret as in JSON, because log lines are JSON.
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

/**
 * Returns the loggable properties of an error. Leaves out all other properties: a Redis error contains the failed
 * command with its arguments, and an HTTP client's error contains the request.
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack } = error;
  const code = "code" in error ? error.code : undefined;
  return { name, message, code, stack };
}

import { pino, type DestinationStream, type Logger } from "pino";

const CENSORED = "[redacted]";
/** Blanking out shorter ones would make logs unreadable, and hide nothing. */
const SHORTEST_SECRET = 4;
const SECRET_NAME = String.raw`(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[-_]?key|(?:access|refresh)_token|(?:client|signing|webhook)?_?secret|password|passphrase|stripe-signature`;
const STRING = String.raw`"(?:[^"\\]|\\.)*"`;
/**
 * Of whatever is logged, however deep: pino's own redaction needs to know each path. A field and its
 * value or values, or a name and a value side by side, as raw headers are.
 */
const SECRET_FIELD = new RegExp(
  String.raw`"(${SECRET_NAME})"([:,])(?:${STRING}|\[(?:${STRING},?)*\])`,
  "gi",
);
/** The line of a header in the text of a request, within JSON. */
const HEADER_LINE = new RegExp(String.raw`(${SECRET_NAME}): (?:[^"\\]|\\[^rn])+`, "gi");
/** User and password of an address. */
const USER_IN_URL = /(?<=:\/\/)[^/\s"@\\]+(?=@)/g;

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

/** An error of Redis carries the command that failed, with all its arguments; one of a client its request. */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return String(error);
  const { name, message, stack } = error;
  const code = "code" in error ? error.code : undefined;
  return { name, message, code, stack };
}

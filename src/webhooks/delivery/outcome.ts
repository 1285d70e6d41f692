/** Classifies the result of an attempt, and decides whether a failure is the endpoint's fault. */

/**
 * The result of an attempt:
 *
 * - `"success"`: a 2xx.
 * - `"client-error"`, `"server-error"`: a 4xx, a 5xx.
 * - `"timeout"`: the reply was not complete in time.
 * - `"redirect"`: a 3xx. Redirects are never followed.
 * - `"too-large"`: the headers of the reply were too large.
 * - `"unreachable"`: no connection, a broken connection, an invalid certificate, or no HTTP.
 * - `"blocked"`: the address is not public, and not allowed.
 * - `"ours"`: no request was sent, because of DNS, the proxy, or a closing sender.
 */
export type Outcome =
  | "success"
  | "client-error"
  | "server-error"
  | "timeout"
  | "redirect"
  | "too-large"
  | "unreachable"
  | "blocked"
  | "ours";

export function classOfStatus(status: number): Outcome {
  if (status < 200) return "unreachable";
  if (status < 300) return "success";
  if (status < 400) return "redirect";
  return status < 500 ? "client-error" : "server-error";
}

/** The outcomes by error name or error code. All other errors are broken connections. */
const BY_CODE: Readonly<Record<string, Outcome>> = {
  DeadlineError: "timeout",
  UND_ERR_HEADERS_TIMEOUT: "timeout",
  UND_ERR_BODY_TIMEOUT: "timeout",
  UND_ERR_CONNECT_TIMEOUT: "timeout",
  ETIMEDOUT: "timeout",
  UND_ERR_HEADERS_OVERFLOW: "too-large",
  HPE_HEADER_OVERFLOW: "too-large",
  EBLOCKED: "blocked",
  // A failure of the resolver is not the endpoint's fault. A name that does not exist is the
  // endpoint's fault.
  ERESOLVE: "ours",
  EPROXY: "ours",
  EMFILE: "ours",
  ENFILE: "ours",
  ENETDOWN: "ours",
};

const MOST_CAUSES = 5;

export function classOfError(thrown: unknown): Outcome {
  let at = thrown;
  for (let depth = 0; depth < MOST_CAUSES && at instanceof Error; depth++) {
    const { code, name, message } = at as NodeJS.ErrnoException;
    const known = BY_CODE[code ?? ""] ?? BY_CODE[name];
    if (known !== undefined) return known;
    const proxy = /^Proxy response \((\d+)\)/.exec(message)?.[1];
    if (proxy !== undefined) return proxy === "403" || proxy === "407" ? "blocked" : "ours";
    at = at instanceof AggregateError ? at.errors[0] : at.cause;
  }
  return "unreachable";
}

const UNREACHABLE = "The endpoint could not be reached";
const WORDS: Readonly<Record<Outcome, string>> = {
  success: "Accepted",
  "client-error": "The endpoint refused it",
  "server-error": "The endpoint failed",
  timeout: "The endpoint did not answer in time",
  redirect: "The endpoint answered with a redirect, which is not followed",
  "too-large": "The head of the endpoint's answer was too large",
  unreachable: UNREACHABLE,
  // The text equals that for unreachable endpoints, because a log must not reveal which internal
  // addresses exist.
  blocked: UNREACHABLE,
  ours: "The sender could not send it",
};

/** Describes a failed attempt for the owner of the endpoint. */
export function wordsFor(outcome: Outcome, status: number | undefined): string {
  return status === undefined ? `${WORDS[outcome]}.` : `${WORDS[outcome]} (status ${status}).`;
}
/** True if an outcome counts against the health of its endpoint. */
export function isEndpointsFault(outcome: Outcome): boolean {
  return outcome !== "success" && outcome !== "ours";
}

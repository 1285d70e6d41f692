/** What an attempt came to, and whose fault that is. */

/**
 * What an attempt came to:
 *
 * - `"success"`: a 2xx.
 * - `"client-error"`, `"server-error"`: a 4xx, a 5xx.
 * - `"timeout"`: the answer was not whole in time.
 * - `"redirect"`: a 3xx; redirects are never followed.
 * - `"too-large"`: the head of the answer was too large to read.
 * - `"unreachable"`: no connection, or one that broke; a wrong certificate; no HTTP.
 * - `"blocked"`: its address is not a public one, and not allowed.
 * - `"ours"`: the endpoint was not even asked: no DNS, no proxy, or the sender was closed.
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

/** Names and codes of errors by what they mean; all others are broken connections. */
const BY_CODE: Readonly<Record<string, Outcome>> = {
  DeadlineError: "timeout",
  UND_ERR_HEADERS_TIMEOUT: "timeout",
  UND_ERR_BODY_TIMEOUT: "timeout",
  UND_ERR_CONNECT_TIMEOUT: "timeout",
  ETIMEDOUT: "timeout",
  UND_ERR_HEADERS_OVERFLOW: "too-large",
  HPE_HEADER_OVERFLOW: "too-large",
  EBLOCKED: "blocked",
  // The resolver did not answer, or it has none; a name that does not exist is its endpoint's fault.
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
  // No other words: who may name addresses must not learn from a log what is there.
  blocked: UNREACHABLE,
  ours: "The sender could not send it",
};

/** What is said of a failed attempt to whom the endpoint belongs. */
export function wordsFor(outcome: Outcome, status: number | undefined): string {
  return status === undefined ? `${WORDS[outcome]}.` : `${WORDS[outcome]} (status ${status}).`;
}
/** Whether an outcome counts against the health of its endpoint. */
export function isEndpointsFault(outcome: Outcome): boolean {
  return outcome !== "success" && outcome !== "ours";
}

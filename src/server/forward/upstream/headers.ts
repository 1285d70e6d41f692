/** Selects the headers that are forwarded, in both directions. */

/** Headers of a single connection (RFC 9110 §7.6.1), and headers that each side sets itself. */
const HOP_BY_HOP: ReadonlySet<string> = new Set([
  "connection",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authentication-info",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "http2-settings",
]);
const OF_THIS_SERVER = "x-sluice-";
/** The cookie of the dashboard is never forwarded, and no upstream may set or clear it. */
const OWN_COOKIE = /(?:^|;)\s*sluice_session=[^;]*/g;
const SETS_OWN_COOKIE = /^\s*sluice_session\s*=/;

/** Names and values in turn, in Node's format. */
type RawHeaders = readonly string[];

export interface RequestHeaderRules {
  /** True if a text contains a token of this server. */
  readonly holdsToken: (text: string) => boolean;
  /** Headers that replace the client's. */
  readonly instead: readonly (readonly [string, string])[];
  /** True if the body of the response is read in transit, and so must not be compressed. */
  readonly isRead: boolean;
}

/** Host and length are set for the request to the upstream. */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  "host",
  "content-length",
  "expect",
]);

/** The headers that an upstream receives. */
export function requestHeaders(raw: RawHeaders, rules: RequestHeaderRules): string[] {
  const { holdsToken, isRead, instead } = rules;
  const passed = pass(
    raw,
    (name, value) =>
      OF_THE_CONNECTION.has(name) ||
      (isRead && name === "accept-encoding") ||
      instead.some(([other]) => other === name) ||
      holdsToken(name) ||
      holdsToken(value),
  );
  for (const [name, value] of instead) passed.push(name, value);
  if (isRead) passed.push("accept-encoding", "identity");
  return passed;
}

/**
 * The types that a browser shows, plays or saves without running a script from them. A header with several types is
 * excluded, because browsers differ in which one they use.
 */
const INERT =
  /^\s*(?:text\/(?:plain|csv|event-stream)|application\/(?:json|octet-stream|x-ndjson|(?!\S*(?:html|xml|svg))[\w.-]+\+json)|image\/(?:avif|bmp|gif|jpeg|png|webp|x-icon|vnd\.microsoft\.icon)|audio\/(?:aac|flac|mp4|mpeg|ogg|wav|webm)|video\/(?:mp4|mpeg|ogg|webm)|font\/(?:otf|ttf|woff2?))\s*(?:;[^,]*)?$/i;
/** Headers that apply to a whole origin. The upstream shares its origin with the board here. */
const OF_THE_ORIGIN: ReadonlySet<string> = new Set([
  "alt-svc",
  "clear-site-data",
  "nel",
  "report-to",
  "service-worker-allowed",
  "strict-transport-security",
]);

/**
 * The headers that a client receives. A page of an upstream has the origin of the board, so the sandbox gives it a
 * separate origin without scripts. The response type decides this, not the requester. Browsers send no `Sec-Fetch-Dest`
 * over plain HTTP, and may later show what a script has requested.
 */
export function responseHeaders(raw: RawHeaders, status: number): string[] {
  const passed = pass(
    raw,
    (name, value) =>
      HOP_BY_HOP.has(name) ||
      OF_THE_ORIGIN.has(name) ||
      name === "x-content-type-options" ||
      (name === "set-cookie" && SETS_OWN_COOKIE.test(value)),
  );
  const types = valuesIn(passed, "content-type");
  const isInert = types.length > 0 && types.every((type) => INERT.test(type));
  // The headers of a 304 replace those of the page in the browser's cache.
  const isShown = status !== 204 && status !== 205 && (status === 304 || !isInert);
  // If the upstream also sends a policy, both apply.
  if (isShown) passed.push("Content-Security-Policy", "sandbox");
  // Browsers read only the first value of this header.
  passed.push("X-Content-Type-Options", "nosniff");
  return passed;
}

function pass(raw: RawHeaders, isDropped: (name: string, value: string) => boolean): string[] {
  const named = namedByConnection(raw);
  const passed: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase();
    const value = raw[at + 1]!;
    if (isDropped(name, value) || name.startsWith(OF_THIS_SERVER) || named.has(name)) continue;
    passed.push(raw[at]!, name === "cookie" ? withoutOwnCookie(value) : value);
  }
  return passed;
}

const NONE: ReadonlySet<string> = new Set();

function namedByConnection(raw: RawHeaders): ReadonlySet<string> {
  let names: Set<string> | undefined;
  for (let at = 0; at < raw.length; at += 2) {
    if (raw[at]!.length !== 10 || raw[at]!.toLowerCase() !== "connection") continue;
    const given = raw[at + 1]!;
    // Most values are one of these, and name no header.
    if (given === "keep-alive" || given === "close") continue;
    names ??= new Set();
    for (const name of given.split(",")) names.add(name.trim().toLowerCase());
  }
  return names ?? NONE;
}

function withoutOwnCookie(text: string): string {
  return text.replaceAll(OWN_COOKIE, "").replace(/^;\s*/, "");
}

/** The first value of a header. Undefined if there is none. */
export function headerIn(raw: RawHeaders, asked: string): string | undefined {
  return valuesIn(raw, asked)[0];
}

function valuesIn(raw: RawHeaders, asked: string): string[] {
  const values: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!;
    if (name.length === asked.length && name.toLowerCase() === asked) values.push(raw[at + 1]!);
  }
  return values;
}

/** Selects the headers that are forwarded, in both directions. */

/**
 * Headers that apply to a single connection (RFC 9110 §7.6.1), and headers that each side sets
 * itself.
 */
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
/** The cookie of the dashboard. It is never forwarded, and no upstream may set or clear it. */
const OWN_COOKIE = /(?:^|;)\s*sluice_session=[^;]*/g;
const SETS_OWN_COOKIE = /^\s*sluice_session\s*=/;

/** Header names and values in alternation, as in Node's `rawHeaders`. */
type RawHeaders = readonly string[];

export interface RequestHeaderRules {
  /** True if a text contains a token of this server. */
  readonly holdsToken: (text: string) => boolean;
  /** Headers that replace the client's headers. */
  readonly instead: readonly (readonly [string, string])[];
  /** True if the bucket reads the body of the response, which must then not be compressed. */
  readonly isRead: boolean;
}

/**
 * Request headers of a single connection. Host and length are set again for the request to the
 * upstream.
 */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  "host",
  "content-length",
  "expect",
]);

/** Returns the headers that an upstream receives. */
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
 * Matches content types that a browser shows, plays or saves without running a script from them. A
 * header with several types never matches, because browsers differ in which type they use.
 */
const INERT =
  /^\s*(?:text\/(?:plain|csv|event-stream)|application\/(?:json|octet-stream|x-ndjson|(?!\S*(?:html|xml|svg))[\w.-]+\+json)|image\/(?:avif|bmp|gif|jpeg|png|webp|x-icon|vnd\.microsoft\.icon)|audio\/(?:aac|flac|mp4|mpeg|ogg|wav|webm)|video\/(?:mp4|mpeg|ogg|webm)|font\/(?:otf|ttf|woff2?))\s*(?:;[^,]*)?$/i;
/**
 * Headers that apply to a whole origin. They are not forwarded, because the upstream and the board
 * share this origin.
 */
const OF_THE_ORIGIN: ReadonlySet<string> = new Set([
  "alt-svc",
  "clear-site-data",
  "nel",
  "report-to",
  "service-worker-allowed",
  "strict-transport-security",
]);

/**
 * Returns the headers that a client receives. A page of an upstream has the same origin as the
 * board, so a sandbox gives the page a separate origin without scripts. The response type decides
 * whether the sandbox applies. The request cannot decide this: browsers send no `Sec-Fetch-Dest`
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
  // Include 304, because the headers of a 304 replace those of the page in the browser's cache.
  const isShown = status !== 204 && status !== 205 && (status === 304 || !isInert);
  // Add the policy even if the upstream sends one, because both then apply.
  if (isShown) passed.push("Content-Security-Policy", "sandbox");
  // The upstream's own value was dropped, because browsers read only the first value of this
  // header.
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
    // Skip these common values, because they name no header.
    if (given === "keep-alive" || given === "close") continue;
    names ??= new Set();
    for (const name of given.split(",")) names.add(name.trim().toLowerCase());
  }
  return names ?? NONE;
}

function withoutOwnCookie(text: string): string {
  return text.replaceAll(OWN_COOKIE, "").replace(/^;\s*/, "");
}

/** Returns the first value of a header. Returns undefined if the header is missing. */
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

/** Which headers pass, both ways. */

/** Those of one connection (RFC 9110 §7.6.1), and what each side says of itself. */
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
/** The cookie of the dashboard must not leave this server, and no upstream may set or clear it. */
const OWN_COOKIE = /(?:^|;)\s*sluice_session=[^;]*/g;
const SETS_OWN_COOKIE = /^\s*sluice_session\s*=/;

/** Pairs of names and values, one after another, as Node has them. */
type RawHeaders = readonly string[];

export interface RequestHeaderRules {
  /** Whether a text holds a token of this server. */
  readonly holdsToken: (text: string) => boolean;
  /** Take the place of the client's. */
  readonly instead: readonly (readonly [string, string])[];
  /** Whether the body of the answer is read on its way, and must come as it is. */
  readonly isRead: boolean;
}

/** Host and length are those of the request to the upstream. */
const OF_THE_CONNECTION: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  "host",
  "content-length",
  "expect",
]);

/** What an upstream is sent. */
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
 * The types that a browser shows, plays or saves without running a script of them. A header that names several types at
 * once is not among them, since browsers differ in which one they take.
 */
const INERT =
  /^\s*(?:text\/(?:plain|csv|event-stream)|application\/(?:json|octet-stream|x-ndjson|(?!\S*(?:html|xml|svg))[\w.-]+\+json)|image\/(?:avif|bmp|gif|jpeg|png|webp|x-icon|vnd\.microsoft\.icon)|audio\/(?:aac|flac|mp4|mpeg|ogg|wav|webm)|video\/(?:mp4|mpeg|ogg|webm)|font\/(?:otf|ttf|woff2?))\s*(?:;[^,]*)?$/i;
/** What an upstream says of its whole origin, which is the origin of the board here. */
const OF_THE_ORIGIN: ReadonlySet<string> = new Set([
  "alt-svc",
  "clear-site-data",
  "nel",
  "report-to",
  "service-worker-allowed",
  "strict-transport-security",
]);

/**
 * What a client is sent. A page of an upstream lies on the origin of the board, so the sandbox gives it an origin of its
 * own, in which no script runs. The type of the answer decides, and not who asks: browsers send no `Sec-Fetch-Dest` over
 * plain HTTP, and may show later what a script had asked for.
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
  // The headers of a 304 take the place of those of the page that a browser has kept.
  const isShown = status !== 204 && status !== 205 && (status === 304 || !isInert);
  // If the upstream sends a policy too, both hold.
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
    // Most say no more than these, and name no header.
    if (given === "keep-alive" || given === "close") continue;
    names ??= new Set();
    for (const name of given.split(",")) names.add(name.trim().toLowerCase());
  }
  return names ?? NONE;
}

function withoutOwnCookie(text: string): string {
  return text.replaceAll(OWN_COOKIE, "").replace(/^;\s*/, "");
}

/** The first value of a header in pairs; undefined if there is none. */
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

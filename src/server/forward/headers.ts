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
]);
const OF_THIS_SERVER = /^x-sluice-/;
/** The cookie of the dashboard must not leave this server. */
const OWN_COOKIE = /(?:^|;)\s*sluice_session=[^;]*/g;

/** Pairs of names and values, one after another, as Node has them. */
type RawHeaders = readonly string[];

export interface RequestHeaderRules {
  /** Whether `authorization` holds a token of this server. */
  readonly hasOwnToken: boolean;
  /** Take the place of the client's. */
  readonly instead: readonly (readonly [string, string])[];
  /** Whether the body of the answer is read on its way, and must come as it is. */
  readonly isRead: boolean;
}

/** What an upstream is sent; host and length are those of the request to it. */
export function requestHeaders(raw: RawHeaders, rules: RequestHeaderRules): string[] {
  const dropped = new Set([
    "host",
    "content-length",
    "expect",
    ...rules.instead.map(([name]) => name),
  ]);
  if (rules.hasOwnToken) dropped.add("authorization");
  if (rules.isRead) dropped.add("accept-encoding");
  const passed = pass(raw, dropped).map((text, index, all) =>
    index % 2 === 1 && all[index - 1]!.toLowerCase() === "cookie" ? withoutOwnCookie(text) : text,
  );
  for (const [name, value] of rules.instead) passed.push(name, value);
  if (rules.isRead) passed.push("accept-encoding", "identity");
  return passed;
}

/** What a client is sent. */
export function responseHeaders(raw: RawHeaders, isDecoded: boolean): string[] {
  return pass(raw, new Set(isDecoded ? ["content-encoding", "content-length"] : []));
}

function pass(raw: RawHeaders, dropped: ReadonlySet<string>): string[] {
  let named: ReadonlySet<string> | undefined;
  const passed: string[] = [];
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase();
    if (HOP_BY_HOP.has(name) || dropped.has(name) || OF_THIS_SERVER.test(name)) continue;
    named ??= namedByConnection(raw);
    if (!named.has(name)) passed.push(raw[at]!, raw[at + 1]!);
  }
  return passed;
}

function namedByConnection(raw: RawHeaders): ReadonlySet<string> {
  const names = new Set<string>();
  for (let at = 0; at < raw.length; at += 2) {
    if (raw[at]!.toLowerCase() !== "connection") continue;
    for (const name of raw[at + 1]!.split(",")) names.add(name.trim().toLowerCase());
  }
  return names;
}

function withoutOwnCookie(text: string): string {
  return text.replaceAll(OWN_COOKIE, "").replace(/^;\s*/, "");
}

/** The value of a header in pairs; undefined if there is none. */
export function headerIn(raw: RawHeaders, asked: string): string | undefined {
  for (let at = 0; at < raw.length; at += 2) {
    if (raw[at]!.toLowerCase() === asked) return raw[at + 1];
  }
  return undefined;
}

/**
 * Removes secrets from replies, because endpoints often repeat the request with its signature and
 * headers.
 */
import { withoutPasswords } from "../../core/describe.ts";
import { hideSecrets } from "./hide-secrets.ts";

const SCHEME = /^(?:bearer|basic|token|apikey|digest|key) +/i;
const PATTERNS: readonly (readonly [pattern: RegExp, shown: string])[] = [
  [/\b(v1a?),[\w+/=\\-]{16,}/g, "$1,***"],
  [/\b(v1|sha256|sha1)=[0-9a-f]{16,}/gi, "$1=***"],
  [/\b(whsec_|whsk_)[\w+/=\\-]+/g, "$1***"],
  [/\b(bearer|basic)\s+[\w.~+/=\\-]{4,}/gi, "$1 ***"],
  [/\b((?:set-)?cookie["']?\s*[:=]\s*["']?)[^"'\n]+/gi, "$1***"],
  [
    // The pattern does not match from the start of a word, because that took 30 ms per reply with
    // many hyphens.
    /(\bauthorization|password|passwd|secret|token|api[_-]?key)(["']?\s*[:=]\s*["']?)(?!\s)[^\s"',;&}]+/gi,
    "$1$2***",
  ],
];

/**
 * Headers that contain no secrets. If their values were hidden, ordinary words in the reply would
 * be hidden too.
 */
const PLAIN = /^(?:accept.*|user-agent|cache-control|content-.*|origin|referer)$/i;
const SIGNED = /signature/i;
/** The secret part of a signature header, without the version and the time. */
const SIGNATURE = /[\w+/=-]{24,}/g;
const BASIC = /^basic +/i;

/** Removes the given secrets from a reply, and anything that looks like another secret. */
export function redacted(answer: string | Buffer, hidden: readonly string[]): string {
  let shown = hideSecrets(Buffer.from(answer), hidden).toString("utf8");
  for (const [pattern, instead] of PATTERNS) shown = shown.replaceAll(pattern, instead);
  return withoutPasswords(shown);
}

/**
 * Returns the secrets of a request: the values of the endpoint's own headers, without schemes such
 * as `Bearer`, and the signatures.
 */
export function hiddenOf(
  own: Readonly<Record<string, string>>,
  signature: Readonly<Record<string, string>>,
): readonly string[] {
  const signatures = Object.entries(signature).filter(([name]) => SIGNED.test(name));
  return [
    ...Object.entries(own).flatMap(([name, value]) =>
      PLAIN.test(name) ? [] : secretsInHeader(value),
    ),
    ...signatures.flatMap(([, value]) => value.match(SIGNATURE) ?? []),
  ];
}

/**
 * Returns the credentials of a header. For `Basic dXNlcjpwYXNz`, also returns the decoded
 * credentials, because receivers may repeat these.
 */
function secretsInHeader(value: string): readonly string[] {
  const credentials = value.replace(SCHEME, "");
  if (!BASIC.test(value)) return [credentials];
  const decoded = Buffer.from(credentials, "base64").toString("latin1");
  return [credentials, decoded, decoded.slice(decoded.indexOf(":") + 1)];
}

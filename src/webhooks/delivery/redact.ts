/** What must not be kept of an answer: endpoints repeat what they were sent, with its signature and headers. */
import { withoutPasswords } from "../../core/describe.ts";
import { withoutHidden } from "./hidden.ts";

const SCHEME = /^(?:bearer|basic|token|apikey|digest|key) +/i;
const PATTERNS: readonly (readonly [pattern: RegExp, shown: string])[] = [
  [/\b(v1a?),[\w+/=\\-]{16,}/g, "$1,***"],
  [/\b(v1|sha256|sha1)=[0-9a-f]{16,}/gi, "$1=***"],
  [/\b(whsec_|whsk_)[\w+/=\\-]+/g, "$1***"],
  [/\b(bearer|basic)\s+[\w.~+/=\\-]{4,}/gi, "$1 ***"],
  [/\b((?:set-)?cookie["']?\s*[:=]\s*["']?)[^"'\n]+/gi, "$1***"],
  [
    // Not from the beginning of their words on: of many hyphens, that took 30 ms for each answer.
    /(\bauthorization|password|passwd|secret|token|api[_-]?key)(["']?\s*[:=]\s*["']?)(?!\s)[^\s"',;&}]+/gi,
    "$1$2***",
  ],
];

/** Headers that say nothing in secret: hiding what they say would hide the same words elsewhere. */
const PLAIN = /^(?:accept.*|user-agent|cache-control|content-.*|origin|referer)$/i;
const SIGNED = /signature/i;
/** The part of a signature's header that is secret: not its version, nor its time. */
const SIGNATURE = /[\w+/=-]{24,}/g;
const BASIC = /^basic +/i;

/** An answer without what it was sent in secret, and without what looks like a secret of others. */
export function redacted(answer: string | Buffer, hidden: readonly string[]): string {
  let shown = withoutHidden(Buffer.from(answer), hidden).toString("utf8");
  for (const [pattern, instead] of PATTERNS) shown = shown.replaceAll(pattern, instead);
  return withoutPasswords(shown);
}

/** What a request says in secret: the values of its own headers without schemes such as `Bearer`, and its signatures. */
export function hiddenOf(
  own: Readonly<Record<string, string>>,
  signature: Readonly<Record<string, string>>,
): readonly string[] {
  const signatures = Object.entries(signature).filter(([name]) => SIGNED.test(name));
  return [
    ...Object.entries(own).flatMap(([name, value]) => (PLAIN.test(name) ? [] : saidBy(value))),
    ...signatures.flatMap(([, value]) => value.match(SIGNATURE) ?? []),
  ];
}

/** Of `Basic dXNlcjpwYXNz`, receivers may repeat what is in it. */
function saidBy(value: string): readonly string[] {
  const said = value.replace(SCHEME, "");
  if (!BASIC.test(value)) return [said];
  const decoded = Buffer.from(said, "base64").toString("latin1");
  return [said, decoded, decoded.slice(decoded.indexOf(":") + 1)];
}

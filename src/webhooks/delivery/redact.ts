/** What must not be kept of an answer: endpoints repeat what they were sent, with its signature and headers. */
import { withoutPasswords } from "../../core/describe.ts";

/** A shorter value is not looked for: it would be found in other words. */
const SHORTEST = 6;

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

/** A text without what it was sent in secret, and without what looks like a secret of others. */
export function redacted(text: string, hidden: readonly string[]): string {
  if (text === "") return text;
  let shown = text;
  // The longest first: one may be a part of another.
  for (const value of hidden.toSorted((one, other) => other.length - one.length)) {
    if (value.length >= SHORTEST) shown = shown.replaceAll(value, "***");
  }
  for (const [pattern, instead] of PATTERNS) shown = shown.replaceAll(pattern, instead);
  return withoutPasswords(shown);
}

/** What a request says in secret: the values of its own headers, and what follows the scheme in such as `Bearer …`. */
export function hiddenOf(headers: Readonly<Record<string, string>>): readonly string[] {
  return Object.values(headers).flatMap((value) => [value, value.replace(SCHEME, "")]);
}

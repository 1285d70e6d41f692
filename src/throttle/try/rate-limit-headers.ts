import { InvalidOptionError } from "../../core/errors.ts";
import type { Decision, LimitDecision } from "./decision.ts";

/** The largest Integer of Structured Fields (RFC 9651 §3.3.1): 15 digits. */
const MOST = 999_999_999_999_999;

/** Names are cut to this length, so that the headers of a policy fit into any server's 8 KiB. */
const LONGEST_NAME = 128;

const LONGEST_SECONDS = 60;

/** Units other than calls that draft-ietf-httpapi-ratelimit-headers-11 names. */
const QUOTA_UNITS: ReadonlySet<string> = new Set(["content-bytes", "concurrent-requests"]);

interface NamedLimit {
  readonly name: string;
  readonly limit: LimitDecision;
}

/**
 * The HTTP headers of a decision:
 *
 * - `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11).
 * - `Retry-After` in whole seconds, if the call was refused.
 * - `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now), of the limit that refused the call, or that has
 *   the least left.
 *
 * HTTP counts in whole seconds. A shorter window becomes the fewest seconds in which a whole number passes: `q=100;w=1`
 * for `"100/s"`, and `q=5;w=3` for `"100/min"`, although no two of these calls may start together. Limits on a unit
 * that HTTP has no name for, such as tokens, are left out, because clients would count them as calls. All values are
 * printable ASCII.
 *
 * @throws {@link InvalidOptionError} when the argument is not a decision.
 */
export function rateLimitHeaders(decision: Decision): Record<string, string> {
  if (!isDecision(decision)) {
    const remedy = "give what tryDraw() resolved with";
    const where = "rateLimitHeaders()";
    throw new InvalidOptionError({ where, option: "decision", value: decision, remedy });
  }
  return headersOf(decision, limitsOverWholeSeconds(decision));
}

/** The same headers, for limits that {@link limitsOverWholeSeconds} has converted. */
export function headersOf(
  decision: Decision,
  wholeLimits: readonly LimitDecision[],
): Record<string, string> {
  const limits = wholeLimits.filter(isShown);
  const shown = nameLimits(limits);
  const binding = bindingLimit(limits, decision);
  const headers: Record<string, string> = {};
  if (shown.length > 0) {
    headers["RateLimit-Policy"] = shown.map(formatPolicyItem).join(", ");
    headers["RateLimit"] = shown.map(formatLimitItem).join(", ");
  }
  if (binding !== undefined) {
    headers["X-RateLimit-Limit"] = formatWhole(binding.capacity);
    headers["X-RateLimit-Remaining"] = formatWhole(binding.remaining);
    headers["X-RateLimit-Reset"] = formatSeconds(binding.resetAfterMs);
  }
  if (!decision.allowed) headers["Retry-After"] = formatSeconds(decision.retryAfterMs, 1);
  return headers;
}

function isDecision(value: Partial<Decision> | undefined): boolean {
  const { limits, retryAfterMs } = value ?? {};
  return typeof retryAfterMs === "number" && Array.isArray(limits) && limits.every(isDecided);
}

function isDecided(value: Partial<LimitDecision> | undefined): boolean {
  const { name, unit, capacity, remaining, windowMs = 0, resetAfterMs, retryAfterMs } = value ?? {};
  const numbers = [capacity, remaining, windowMs, resetAfterMs, retryAfterMs];
  const areNumbers = numbers.every((each) => typeof each === "number");
  return typeof name === "string" && typeof unit === "string" && areNumbers;
}

function isShown({ unit }: LimitDecision): boolean {
  return unit === "calls" || QUOTA_UNITS.has(unit);
}

/** A client finds an item's policy by its name, so a limit of the bucket and one of a key must not share a name. */
function nameLimits(limits: readonly LimitDecision[]): readonly NamedLimit[] {
  return limits.map((limit) => {
    const isShared = limits.some(({ name, scope }) => name === limit.name && scope !== limit.scope);
    const suffix = isShared && limit.scope === "key" ? " per key" : "";
    return { name: formatName(limit.name, suffix), limit };
  });
}

/** The limits of a decision, converted to whole seconds. */
export function limitsOverWholeSeconds(decision: Decision): LimitDecision[] {
  return decision.limits.map((limit) => overWholeSeconds(limit, decision));
}

/**
 * Converts a limit with a window below a second, which HTTP would round up: 1 call per 10 ms would become 1 call per
 * second. The result says what the limit allows in whole seconds, and what is left of that. If the limit refuses,
 * nothing more is left.
 */
export function overWholeSeconds(
  limit: LimitDecision,
  { allowed }: Pick<Decision, "allowed">,
): LimitDecision {
  const { capacity, windowMs, remaining, resetAfterMs, retryAfterMs } = limit;
  if (windowMs === undefined || !(windowMs > 0 && windowMs < 1_000)) return limit;
  const { quota, seconds } = wholeQuota(capacity / windowMs);
  const wholeMs = seconds * 1_000;
  const used = Math.max(capacity - remaining, Math.floor((quota * resetAfterMs) / wholeMs));
  const isRefusing = !allowed && retryAfterMs > 0;
  const left = isRefusing ? remaining : Math.max(remaining, quota - used);
  return { ...limit, capacity: quota, windowMs: wholeMs, remaining: Math.min(quota, left) };
}

/**
 * The fewest seconds, up to a minute, in which a whole number passes; otherwise what passes in a minute, rounded down.
 */
function wholeQuota(perMs: number): { readonly quota: number; readonly seconds: number } {
  for (let seconds = 1; seconds < LONGEST_SECONDS; seconds++) {
    // Rounds to millionths: 60/s is 16.666666666666668 ms each, which must not become 61.
    const quota = Math.round(perMs * seconds * 1e9) / 1e6;
    if (Number.isInteger(quota)) return { quota, seconds };
  }
  return {
    quota: Math.floor(Math.round(perMs * LONGEST_SECONDS * 1e9) / 1e6),
    seconds: LONGEST_SECONDS,
  };
}

function bindingLimit(
  shown: readonly LimitDecision[],
  { limitedBy }: Decision,
): LimitDecision | undefined {
  const refusing = shown.filter(({ name, retryAfterMs }) => name === limitedBy && retryAfterMs > 0);
  const candidates = refusing.length > 0 ? refusing : shown;
  let least = candidates[0];
  for (const each of candidates) {
    const order = each.remaining - least!.remaining || least!.resetAfterMs - each.resetAfterMs;
    if (order < 0) least = each;
  }
  return least;
}

function formatPolicyItem({ name, limit }: NamedLimit): string {
  const isConcurrency = limit.windowMs === undefined && limit.unit === "calls";
  const quotaUnit = isConcurrency ? "concurrent-requests" : limit.unit;
  const unit = quotaUnit === "calls" ? "" : `;qu="${quotaUnit}"`;
  const window = limit.windowMs === undefined ? "" : `;w=${formatSeconds(limit.windowMs, 1)}`;
  return `${name};q=${formatWhole(limit.capacity)}${unit}${window}`;
}

/**
 * `t` is how long no more than `r` can be used. For a limit that refuses, it ends when the limit would allow the call,
 * so that `Retry-After` is never earlier, as section 6 of the draft requires.
 */
function formatLimitItem({ name, limit }: NamedLimit): string {
  const untilMs = limit.retryAfterMs > 0 ? limit.retryAfterMs : limit.resetAfterMs;
  const effective = limit.windowMs === undefined ? "" : `;t=${formatSeconds(untilMs)}`;
  return `${name};r=${formatWhole(limit.remaining)}${effective}`;
}

/** A name that needs no encoding. */
const PLAIN = /^[ !#-[\]-~]{0,128}$/;

/** An sf-string may contain only printable ASCII (RFC 9651 §3.3.3); other characters are percent-encoded. */
function formatName(name: string, suffix: string): string {
  if (PLAIN.test(name)) return `"${name}${suffix}"`;
  const ascii = name
    .slice(0, LONGEST_NAME)
    .replaceAll(/[^ -~]+/g, (text) =>
      Array.from(
        Buffer.from(text),
        (byte) => `%${byte.toString(16).padStart(2, "0").toUpperCase()}`,
      ).join(""),
    );
  const escaped = `${ascii.slice(0, LONGEST_NAME)}${suffix}`.replaceAll(/["\\]/g, String.raw`\$&`);
  return `"${escaped}"`;
}

function formatWhole(count: number): string {
  return toWhole(Math.floor(count), 0);
}

function formatSeconds(ms: number, least = 0): string {
  return toWhole(Math.ceil(ms / 1_000), least);
}

/** Never returns NaN, `1e21` or `-0`, which would make the whole header invalid. */
function toWhole(count: number, least: number): string {
  return String(Math.min(MOST, count > least ? count : least));
}

import { InvalidOptionError } from "../../core/errors.ts";
import type { Decision, LimitDecision } from "./decision.ts";

/** The largest Integer of Structured Fields (RFC 9651 §3.3.1): 15 digits. */
const MOST = 999_999_999_999_999;

/** Names on the wire are cut here, so that a policy's headers fit into any server's 8 KiB. */
const LONGEST_NAME = 128;

const LONGEST_SECONDS = 60;

/** Units that draft-ietf-httpapi-ratelimit-headers-11 has a name for, besides calls. */
const QUOTA_UNITS: ReadonlySet<string> = new Set(["content-bytes", "concurrent-requests"]);

interface NamedLimit {
  readonly name: string;
  readonly limit: LimitDecision;
}

/**
 * The HTTP headers of a decision: `RateLimit-Policy` and `RateLimit`
 * (draft-ietf-httpapi-ratelimit-headers-11), `Retry-After` in whole seconds
 * when the call was refused, and `X-RateLimit-Limit`, `-Remaining` and `-Reset`
 * (seconds from now) of the limit that refused it, or has the least left.
 * HTTP counts in whole seconds: a shorter window is given as the fewest seconds in which a whole number passes,
 * `q=100;w=1` of `"100/s"` and `q=5;w=3` of `"100/min"`, though no two of these calls may leave together.
 * Limits on a unit that HTTP has no name for, such as tokens, are left out:
 * clients would count them as calls. All values are printable ASCII.
 *
 * @throws {@link InvalidOptionError} when it is no decision.
 */
export function rateLimitHeaders(decision: Decision): Record<string, string> {
  if (!isDecision(decision)) {
    const remedy = "give what tryDraw() resolved with";
    const where = "rateLimitHeaders()";
    throw new InvalidOptionError({ where, option: "decision", value: decision, remedy });
  }
  return headersOf(decision, limitsOverWholeSeconds(decision));
}

/** The same, of limits as {@link limitsOverWholeSeconds} has them. */
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

/** A client finds an item's policy by its name, so a bucket's limit and a key's must not share one. */
function nameLimits(limits: readonly LimitDecision[]): readonly NamedLimit[] {
  return limits.map((limit) => {
    const isShared = limits.some(({ name, scope }) => name === limit.name && scope !== limit.scope);
    const suffix = isShared && limit.scope === "key" ? " per key" : "";
    return { name: formatName(limit.name, suffix), limit };
  });
}

/** The limits of a decision, as HTTP counts: in whole seconds. */
export function limitsOverWholeSeconds(decision: Decision): LimitDecision[] {
  return decision.limits.map((limit) => overWholeSeconds(limit, decision));
}

/**
 * A window of 10 ms for 1 call would come out as one of a second, and a rate of
 * 100/s as 1/s: such a limit is given as what it lets pass in whole seconds, and
 * what is left of that. While a limit refuses, nothing more is left.
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

/** The fewest seconds, up to a minute, in which a whole number passes; else what passes in a minute, rounded down. */
function wholeQuota(perMs: number): { readonly quota: number; readonly seconds: number } {
  for (let seconds = 1; seconds < LONGEST_SECONDS; seconds++) {
    // Of whole millionths: 60/s is 16.666666666666668 ms each, which must not come to 61.
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
 * `t` is how long no more than `r` can be used: of a limit that refuses, until
 * it would not. So Retry-After is never earlier, as section 6 of the draft asks.
 */
function formatLimitItem({ name, limit }: NamedLimit): string {
  const untilMs = limit.retryAfterMs > 0 ? limit.retryAfterMs : limit.resetAfterMs;
  const effective = limit.windowMs === undefined ? "" : `;t=${formatSeconds(untilMs)}`;
  return `${name};r=${formatWhole(limit.remaining)}${effective}`;
}

/** A name that stays as it is. */
const PLAIN = /^[ !#-[\]-~]{0,128}$/;

/** An sf-string holds printable ASCII only (RFC 9651 §3.3.3); the bytes of all else are percent-encoded. */
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

/** Never NaN, `1e21` or `-0`: each would break the whole field. */
function toWhole(count: number, least: number): string {
  return String(Math.min(MOST, count > least ? count : least));
}

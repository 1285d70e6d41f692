import { InvalidOptionError } from "../../core/errors.ts";
import type { Decision, LimitDecision } from "./decision.ts";

/** The largest integer in a structured field (RFC 9651 §3.3.1): 15 digits. */
const MOST = 999_999_999_999_999;

/** Longer limit names are cut to this length, so that the headers fit into the 8 KiB that servers usually allow. */
const LONGEST_NAME = 128;

const LONGEST_SECONDS = 60;

/** The units, besides calls, that draft-ietf-httpapi-ratelimit-headers-11 defines. */
const QUOTA_UNITS: ReadonlySet<string> = new Set(["content-bytes", "concurrent-requests"]);

interface NamedLimit {
  readonly name: string;
  readonly limit: LimitDecision;
}

/**
 * Returns the HTTP headers for a decision:
 *
 * - `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-11).
 * - `Retry-After` in whole seconds, if the call was refused.
 * - `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now). They describe the limit that refused the call,
 *   or else the limit with the least left.
 *
 * The headers count time in whole seconds. A limit with a window below a second is converted to the fewest seconds in
 * which a whole number of calls passes: `q=100;w=1` for `"100/s"`, and `q=5;w=3` for `"100/min"`. Still, no two of
 * these calls may start at the same time.
 *
 * The headers omit limits on a unit that HTTP has no name for, such as tokens, because clients would count them as
 * calls. All values are printable ASCII.
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

/** Returns the same headers for limits that {@link limitsOverWholeSeconds} has already converted. */
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

/**
 * Gives each limit a unique name. A client finds the policy of an item by name, so a shared limit and a per-key limit
 * must not have the same name.
 */
function nameLimits(limits: readonly LimitDecision[]): readonly NamedLimit[] {
  return limits.map((limit) => {
    const isShared = limits.some(({ name, scope }) => name === limit.name && scope !== limit.scope);
    const suffix = isShared && limit.scope === "key" ? " per key" : "";
    return { name: formatName(limit.name, suffix), limit };
  });
}

/** Returns the limits of a decision, converted to whole seconds. */
export function limitsOverWholeSeconds(decision: Decision): LimitDecision[] {
  return decision.limits.map((limit) => overWholeSeconds(limit, decision));
}

/**
 * Converts a limit with a window below a second, because rounding the window up would be wrong: 1 call per 10 ms would
 * become 1 call per second. The result has the capacity per whole seconds, and how much of this capacity remains. If
 * the limit refuses the call, the remaining units are those of the limit itself.
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
 * Returns the fewest seconds, up to a minute, in which a whole number of units passes. If there is no such time,
 * returns the units per minute, rounded down.
 */
function wholeQuota(perMs: number): { readonly quota: number; readonly seconds: number } {
  for (let seconds = 1; seconds < LONGEST_SECONDS; seconds++) {
    // Rounds to millionths. Otherwise 60/s, with 16.666666666666668 ms per call, would become 61.
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
 * Formats a limit with `r`, the remaining units, and `t`, the seconds for which no more than `r` units can be used. For
 * a limit that refuses, `t` ends when the limit would allow the call. `Retry-After` is then never earlier than `t`, as
 * section 6 of the draft requires.
 */
function formatLimitItem({ name, limit }: NamedLimit): string {
  const untilMs = limit.retryAfterMs > 0 ? limit.retryAfterMs : limit.resetAfterMs;
  const effective = limit.windowMs === undefined ? "" : `;t=${formatSeconds(untilMs)}`;
  return `${name};r=${formatWhole(limit.remaining)}${effective}`;
}

/** Matches names that need no encoding. */
const PLAIN = /^[ !#-[\]-~]{0,128}$/;

/**
 * Formats a name as a string of a structured field (RFC 9651 §3.3.3). Such strings contain only printable ASCII, so
 * other characters are percent-encoded.
 */
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

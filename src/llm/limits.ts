import { InvalidOptionError } from "../core/errors.ts";
import { formatPeriod, parseRate, type RateInput } from "../core/limits/rate.ts";
import type { Limit } from "../core/limits/rule.ts";
import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
} from "../core/policy/limit-makers.ts";

/**
 * The share of a token limit that may start at once, at first use and after an idle time. A larger
 * call draws this share, and the rest is settled.
 */
const AT_ONCE = 0.25;
/** The largest sliding log, in units. Redis keeps one entry for each call in it. */
const MOST_LOGGED = 1_000_000;
/** How much longer our window is than the provider's, as a share of it: calls may arrive late. */
const LATE = 1 / 60;
/** The highest level that a leaky bucket can hold, with some margin. */
const MOST_LEVEL = 2 ** 51;

/** The options that are limits per time, and what each counts. */
const RATES = { requests: "calls", tokens: "tokens", input: "input", output: "output" } as const;
/** The options that are limits per day, and what each counts. */
const DAYS = { requestsPerDay: "calls", tokensPerDay: "tokens" } as const;

/** The limits of an account, as presets take them. No provider has all of them. */
export type LimitsGiven = {
  readonly [Option in keyof typeof RATES]?: RateInput | undefined;
} & { readonly [Option in keyof typeof DAYS]?: number | undefined };

/** How a provider counts its limits, and the share of them that stays unused. */
export interface LimitsStyle {
  readonly where: string;
  readonly headroom: number;
  /** The time zone in which its days begin. */
  readonly timeZone: string;
}

/** Returns limits that keep calls within the provider's. */
export function limitsOf(
  { where, headroom, timeZone }: LimitsStyle,
  given: LimitsGiven,
): readonly Limit[] {
  const limits: Limit[] = [];
  for (const [option, unit] of entriesOf(RATES)) {
    const rate = given[option];
    if (rate !== undefined) limits.push(...pacedOf({ where, option, rate, unit, headroom }));
  }
  for (const [option, unit] of entriesOf(DAYS)) {
    const max = given[option];
    const align = { at: "00:00", timeZone };
    if (max !== undefined) limits.push(fixedWindow(max, "1d", { unit, align }));
  }
  if (limits.length > 0) return Object.freeze(limits);
  const remedy = 'give the limits of your account, such as requests: "500/min"';
  throw new InvalidOptionError({ where, option: "requests", value: undefined, remedy });
}

function entriesOf<Name extends string, Value>(of: Readonly<Record<Name, Value>>): [Name, Value][] {
  return Object.entries(of) as [Name, Value][];
}

interface Given {
  readonly where: string;
  readonly option: string;
  readonly rate: RateInput;
  readonly unit: string;
  readonly headroom: number;
}

/**
 * Spaces calls evenly, slightly slower than the provider allows. For tokens, a part may start at
 * once. A sliding log next to it keeps that part and the flow after it within the limit, however
 * the provider counts.
 *
 * Where the limit is too large for a log, a sliding window takes its place, or nothing. Then the
 * total can reach 1.24 times the limit.
 */
function pacedOf({ where, option, rate, unit, headroom }: Given): Limit[] {
  const { count, periodUs } = unreduced(where, option, rate);
  const isCalls = unit === "calls";
  const perMs = Math.ceil(periodUs / 1_000 / (1 - headroom));
  const paced = parseRate(where, { calls: count, per: `${perMs}ms` }, option);
  const most = Math.floor(MOST_LEVEL / (3 * paced.periodUs));
  const burst = isCalls ? 1 : Math.max(1, Math.min(Math.floor(count * AT_ONCE), most));
  const spaced = leakyBucket({ calls: count, per: `${perMs}ms` }, { unit, burst });
  const label = `${count} per ${formatPeriod(periodUs)}`;
  const limits: Limit[] = [Object.freeze({ ...spaced, label })];
  if (isCalls) return limits;
  const windowMs = Math.ceil((periodUs * (1 + LATE)) / 1_000);
  // No window can count a larger limit.
  if (count > MOST_LEVEL / (windowMs * 1_000)) return limits;
  const per = `${windowMs}ms`;
  const window = count <= MOST_LOGGED ? slidingLog : slidingWindow;
  return [...limits, Object.freeze({ ...window(count, per, { unit }), label: `at most ${label}` })];
}

/**
 * Reads a rate as written, without reducing it: `"600/min"` is 600 per minute, not 10 per second.
 */
function unreduced(
  where: string,
  option: string,
  rate: RateInput,
): { readonly count: number; readonly periodUs: number } {
  const reduced = parseRate(where, rate, option);
  const written = typeof rate === "string" ? Number.parseInt(rate, 10) : rate.calls;
  return { count: written, periodUs: (reduced.periodUs * written) / reduced.count };
}

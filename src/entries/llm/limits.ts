import { InvalidOptionError } from "../../core/errors.ts";
import { formatPeriod, parseRate, type RateInput } from "../../core/limits/rate.ts";
import type { Limit } from "../../core/limits/rule.ts";
import {
  fixedWindow,
  leakyBucket,
  slidingLog,
  slidingWindow,
} from "../../core/policy/limit-makers.ts";

/**
 * The part of a token limit that may start at once, at first use and after an idle time. A call
 * that needs more draws this part, and the rest is booked after the call.
 */
const AT_ONCE = 0.25;
/**
 * The largest limit that gets a sliding log, in units. Redis stores one entry for each call in the
 * log.
 */
const MOST_LOGGED = 1_000_000;
/**
 * The part by which our window is longer than the provider's window, because calls may arrive late.
 */
const LATE = 1 / 60;
/** The highest level of a leaky bucket that a double represents exactly, with some margin. */
const MOST_LEVEL = 2 ** 51;

/** The options for limits per time, and the unit that each limit counts. */
const RATES = { requests: "calls", tokens: "tokens", input: "input", output: "output" } as const;
/** The options for limits per day, and the unit that each limit counts. */
const DAYS = { requestsPerDay: "calls", tokensPerDay: "tokens" } as const;

/** The limits of an account in the options of presets. No provider has all of these limits. */
export type LimitsGiven = {
  readonly [Option in keyof typeof RATES]?: RateInput | undefined;
} & { readonly [Option in keyof typeof DAYS]?: number | undefined };

/**
 * How limits are created for a provider: the part that stays unused, and the provider's time zone.
 */
export interface LimitsStyle {
  readonly where: string;
  readonly headroom: number;
  /** The time zone in which the provider's days begin. */
  readonly timeZone: string;
}

/** Returns limits that keep calls within the limits of the provider. */
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
 * Creates the limits for one rate of the provider. A leaky bucket spaces calls evenly, slightly
 * slower than the provider allows. For tokens, a part of the limit may start at once. A sliding log
 * in addition keeps that part and the following calls within the limit, however the provider
 * counts.
 *
 * If the limit is too large for a sliding log, a sliding window replaces the log. If it is too
 * large for a window too, only the leaky bucket remains. In these cases, the total can reach 1.24
 * times the limit.
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
  // No window can count a limit that is larger than this.
  if (count > MOST_LEVEL / (windowMs * 1_000)) return limits;
  const per = `${windowMs}ms`;
  const window = count <= MOST_LOGGED ? slidingLog : slidingWindow;
  return [...limits, Object.freeze({ ...window(count, per, { unit }), label: `at most ${label}` })];
}

/**
 * Reads a rate without reducing it to lowest terms: `"600/min"` is 600 per minute, not 10 per
 * second.
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

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
 * What of a limit of tokens may leave at once, as a bucket begins and after an idle time. A call that takes more draws so
 * much, and is settled.
 */
const AT_ONCE = 0.25;
/** The most units of a log; Redis keeps an entry for each of its calls. */
const MOST_LOGGED = 1_000_000;
/** The part of a provider's window by which one of ours is longer: calls may arrive late. */
const LATE = 1 / 60;
/** The highest level that a leaky bucket can hold, with room to spare. */
const MOST_LEVEL = 2 ** 51;

/** The options that are limits per time, and what each counts. */
const RATES = { requests: "calls", tokens: "tokens", input: "input", output: "output" } as const;
/** Those that are limits of a day. */
const DAYS = { requestsPerDay: "calls", tokensPerDay: "tokens" } as const;

/** The limits of an account, as a preset takes them; no provider has all. */
export type LimitsGiven = {
  readonly [Option in keyof typeof RATES]?: RateInput | undefined;
} & { readonly [Option in keyof typeof DAYS]?: number | undefined };

/** How a provider counts its limits per minute, and how much of them is left unused. */
export interface LimitsStyle {
  readonly where: string;
  readonly headroom: number;
  /** Where its days begin. */
  readonly timeZone: string;
}

/** The limits that keep those of a provider. */
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
 * Evenly spaced calls, a little slower than the provider allows. Of tokens, a part may leave at once; a log beside it
 * keeps that part and what flows after it together within what the provider allows, however it counts. Where the limit is
 * too large for a log, that is an estimate, or nothing: then the two can come to 1.24 times the limit.
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
  // Larger ones no window can count.
  if (count > MOST_LEVEL / (windowMs * 1_000)) return limits;
  const per = `${windowMs}ms`;
  const window = count <= MOST_LOGGED ? slidingLog : slidingWindow;
  return [...limits, Object.freeze({ ...window(count, per, { unit }), label: `at most ${label}` })];
}

/** A rate as it was written: `"600/min"` is 600, and not 10 per second. */
function unreduced(
  where: string,
  option: string,
  rate: RateInput,
): { readonly count: number; readonly periodUs: number } {
  const reduced = parseRate(where, rate, option);
  const written = typeof rate === "string" ? Number.parseInt(rate, 10) : rate.calls;
  return { count: written, periodUs: (reduced.periodUs * written) / reduced.count };
}

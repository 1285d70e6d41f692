import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import { formatPeriod, parsePeriod } from "../limits/rate.ts";
import type { ReadableTime } from "../limits/readable-rate.ts";
import { LONGEST_MS, readOptions, wholeNumber } from "../input/options.ts";
import { labelRate, rateLimit } from "./limit-makers.ts";

/** The options of {@link contract}: how a downstream counts calls, and how calls may start. */
export interface ContractOptions {
  /**
   * How the downstream counts calls: in any window of length `per` (`"sliding"`), or in windows that begin at fixed
   * clock times (`"calendar"`). Both result in the same rate, see {@link contract}. Defaults to `"sliding"`.
   */
  readonly window?: "sliding" | "calendar" | undefined;
  /**
   * The most ms by which timers, connecting and the network delay a call after its slot, compared with the fastest
   * call. Raise it if the downstream rejects calls although no one else uses the account. Defaults to 50.
   */
  readonly jitterMs?: number | undefined;
  /** The calls that may start at once after an idle time. Each call above 1 lowers the rate. Defaults to 1. */
  readonly burst?: number | undefined;
}

/**
 * The rate and burst of the fastest bucket that keeps a contract. `peek` and errors show the terms of the contract:
 * `"contract of 100 per 1s"`.
 */
export interface Contract {
  /** `{ calls: 100, per: "1050ms" }` for 100 calls in any second that arrive up to 50 ms late. */
  readonly rate: { readonly calls: number; readonly per: string };
  readonly burst: number;
  /** The rate in readable form, rounded: `"95.24/s"`. */
  readonly describes: string;
}

const MAX_CALLS = 1_000_000_000;
const LONGEST_PER_MS = 366 * 86_400_000;
/** The most ms in the `per` of a rate, which has at most nine digits. */
const MOST_MS = 999_999_999;
const MAX = z.strictObject({ max: wholeNumber(1, MAX_CALLS, "calls") });

/**
 * Returns the fastest rate that keeps a contract. The downstream counts at most `max` calls per `per`, and at this rate
 * it never rejects a call, whatever the pattern of the calls.
 *
 * Consider a leaky bucket with rate r and burst B, whose calls arrive up to J after their slots. At most B − 1 + ⌈r ×
 * (W + J)⌉ calls then arrive in a half-open window of length W. That is within `max` as long as r ≤ (max − B + 1) / (W
 * + J), and this function returns exactly that rate. Any faster bucket breaks the contract: the burst and all calls of
 * the following J arrive together at J, and call number `max` + 1 arrives before J + W.
 *
 * A calendar window does not allow a faster rate. The bucket starts with its first call, at any clock time, so the
 * window in which a faster bucket breaks the contract can be a calendar window.
 *
 * @throws {@link InvalidOptionError} when an argument can never work.
 */
export function contract<const Per extends string>(
  max: number,
  per: Per & ReadableTime<Per>,
  options: ContractOptions = {},
): Contract {
  const where = "contract()";
  readOptions(where, MAX, { max });
  const windowMs = parsePeriod(where, "per", per) / 1_000;
  const { jitterMs = 50, burst = 1 } = readOptions(where, optionsUpTo(max), options);
  const lateMs = windowMs + jitterMs;
  if (lateMs > LONGEST_PER_MS) {
    const remedy = `with ${jitterMs} ms of jitter it is longer than 366 days; give a shorter time`;
    throw new InvalidOptionError({ where, option: "per", value: per, remedy });
  }
  const calls = max - burst + 1;
  const rate = Object.freeze({ calls, per: formatTime(lateMs) });
  // Throws if no bucket can represent the rate.
  rateLimit(where, { rate, burst });
  labelRate(rate, burst, describeTerms(max, windowMs, burst));
  const chosen = { rate, burst };
  // `describes` is not enumerable, so that the result can be passed as a policy.
  Object.defineProperty(chosen, "describes", { value: describeRate(calls / lateMs, burst) });
  return Object.freeze(chosen) as Contract;
}

function optionsUpTo(max: number) {
  return z.strictObject({
    window: z.enum(["sliding", "calendar"], { error: 'give "sliding" or "calendar"' }).optional(),
    jitterMs: wholeNumber(0, LONGEST_MS, "milliseconds").optional(),
    burst: wholeNumber(1, max, "calls").optional(),
  });
}

/** Formats a time in ms. Rounds times above 11 days up to seconds, which slows the rate by less than one millionth. */
function formatTime(timeMs: number): string {
  return timeMs <= MOST_MS ? `${timeMs}ms` : `${Math.ceil(timeMs / 1_000)}s`;
}

/** Formats the terms for `peek` and errors: `"contract of 100 per 1s"`. */
function describeTerms(max: number, windowMs: number, burst: number): string {
  const terms = `contract of ${max} per ${formatPeriod(windowMs * 1_000)}`;
  return burst === 1 ? terms : `${terms} with a burst of ${burst}`;
}

function describeRate(callsPerMs: number, burst: number): string {
  const units = { s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };
  const [unit, unitMs] = Object.entries(units).find(([, ms]) => callsPerMs * ms >= 1) ?? [
    "d",
    units.d,
  ];
  const calls = callsPerMs * unitMs;
  const rate = `${Number(calls < 1 ? calls.toPrecision(2) : calls.toFixed(2))}/${unit}`;
  return burst === 1 ? rate : `${rate} with a burst of ${burst}`;
}

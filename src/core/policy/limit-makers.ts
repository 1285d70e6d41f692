import * as z from "zod";
import { InvalidOptionError } from "../errors.ts";
import {
  MILLIONTHS,
  MOST_UNITS,
  periodUsOf,
  rollingDaysOf,
  toMillionths,
} from "../limits/budget.ts";
import { isAlign, isTimeZone, readAlign, type Align } from "../limits/calendar-days.ts";
import {
  declaredRate,
  formatRate,
  parsePeriod,
  parseRate,
  type RateInput,
} from "../limits/rate.ts";
import type { Readable, ReadableTime } from "../limits/readable-rate.ts";
import { ruleOf, RULES } from "../limits/registry.ts";
import type { AdaptiveTerms, BudgetPeriod, BudgetTerms, Limit } from "../limits/rule.ts";
import { LONGEST_MS, readOptions, UNIT, wholeNumber } from "../input/options.ts";

/** The booking horizon: how far ahead the store hands out slots, in µs. */
export const HORIZON_US = 100_000;
export const HORIZON_MS: number = HORIZON_US / 1_000;

/** A double represents every whole number up to this one exactly. */
const MAX_LEVEL = 2 ** 53;
const MOST = 1_000_000_000;
const MOST_AT_ONCE = 1_000_000;

const A_SHADOW = z.boolean({ error: "give true or false" }).optional();
const OF_UNIT = z.strictObject({ unit: UNIT.optional(), shadow: A_SHADOW });
const LEAKY_BUCKET = z.strictObject({ ...OF_UNIT.shape, burst: z.custom<number>().optional() });
const TOKEN_BUCKET = z.strictObject({
  ...OF_UNIT.shape,
  capacity: wholeNumber(1, MOST, "units"),
  // Optional here, because parseRate rejects a missing value.
  refill: z.custom<RateInput>().optional(),
});
const FIXED_WINDOW = z.strictObject({
  ...OF_UNIT.shape,
  align: z.custom<"epoch" | Align>().optional(),
});
const AMOUNT_ERROR = {
  error: `give an amount above 0, up to ${MOST_UNITS} units, such as 500 or 0.25`,
};
const AMOUNT = z.number(AMOUNT_ERROR).positive(AMOUNT_ERROR).max(MOST_UNITS, AMOUNT_ERROR);
const PER_ERROR = { error: 'give "day", "week", "month", "quarter", "year", or { days: 30 }' };
/** More days would make each draw too long, because it sends the start of each day. */
const MOST_DAYS = 100;
const DAYS = z.strictObject({
  days: wholeNumber(2, MOST_DAYS, "days").describe("The number of days in the rolling period."),
});
const CARRY_ERROR = { error: "give true, false, or { max: 100 }" };
const PARTS_ERROR = { error: "give parts of the amount in ascending order, such as [0.5, 0.8]" };
const MOST_PARTS = 10;
const PER = z.union([z.enum(["day", "week", "month", "quarter", "year"]), DAYS], PER_ERROR);
const TIME_ZONE_ERROR = { error: 'give an IANA time zone such as "Europe/Berlin" or "UTC"' };
const TIME_ZONE = z.string(TIME_ZONE_ERROR).refine(isTimeZone, TIME_ZONE_ERROR);
const WEEK_START = z.enum(["monday", "sunday"], { error: 'give "monday" or "sunday"' });
const WARN_AT = z
  .array(z.number(PARTS_ERROR).gt(0, PARTS_ERROR).max(1, PARTS_ERROR), PARTS_ERROR)
  .max(MOST_PARTS, { error: `give at most ${MOST_PARTS} parts` })
  .refine((parts) => parts.every((part, at) => at === 0 || part > parts[at - 1]!), PARTS_ERROR);
const ON_SPENT = z.enum(["refuse", "wait"], { error: 'give "refuse" or "wait"' });
const RESERVE_MS = wholeNumber(1_000, LONGEST_MS, "milliseconds");
const HTTP_STATUS = z.literal([402, 429], { error: "give 402 or 429" });
const BUDGET = z.strictObject({
  unit: UNIT,
  amount: AMOUNT,
  per: PER,
  timeZone: TIME_ZONE.optional(),
  weekStart: WEEK_START.optional(),
  carryOver: z
    .union(
      [
        z.boolean(),
        z.strictObject({ max: AMOUNT.describe("The most that is added to the next period.") }),
      ],
      CARRY_ERROR,
    )
    .optional(),
  warnAt: WARN_AT.optional(),
  onSpent: ON_SPENT.optional(),
  reserveMs: RESERVE_MS.optional(),
  httpStatus: HTTP_STATUS.optional(),
});
const BUDGET_TERMS: z.ZodType<BudgetTerms> = z.strictObject({
  per: PER,
  timeZone: TIME_ZONE,
  weekStart: WEEK_START,
  mostCarried: z.number().min(0).max(MOST_UNITS).optional(),
  warnAt: WARN_AT,
  onSpent: ON_SPENT,
  reserveMs: RESERVE_MS,
  httpStatus: HTTP_STATUS,
});
const CONCURRENCY = z.strictObject({
  leaseMs: wholeNumber(1_000, LONGEST_MS, "milliseconds").optional(),
});
const TARGET = z.literal("latency", { error: 'give "latency"' });
const MOST_TOLERANCE = 10;
const TOLERANCE_ERROR = {
  error: `give a number from 1.01 to ${MOST_TOLERANCE}, such as 1.1 for a latency 10 % above the baseline`,
};
const TOLERANCE = z
  .number(TOLERANCE_ERROR)
  .min(1.01, TOLERANCE_ERROR)
  .max(MOST_TOLERANCE, TOLERANCE_ERROR);
const AT_ONCE = wholeNumber(1, MOST_AT_ONCE, "calls");
const AUTO_CONCURRENCY = z.strictObject({
  ...CONCURRENCY.shape,
  target: TARGET.optional(),
  min: AT_ONCE.optional(),
  max: AT_ONCE.optional(),
  initial: AT_ONCE.optional(),
  tolerance: TOLERANCE.optional(),
  shadow: A_SHADOW,
});
const ADAPTIVE_TERMS: z.ZodType<AdaptiveTerms> = z.strictObject({
  target: TARGET,
  min: AT_ONCE,
  initial: AT_ONCE,
  tolerance: TOLERANCE,
  shadow: z.literal(true).optional(),
});
/** The options of a concurrency limit that adapts to latency, if they are not given. */
const AUTO = { min: 1, max: 1_000, initial: 20, tolerance: 1.1 } as const;

/**
 * Creates a limit that spaces calls evenly. `leakyBucket("100/s")` lets one call start every 10 ms. After an idle time,
 * `burst` units may start at once. Stores two numbers in Redis.
 *
 * @throws {@link InvalidOptionError} when rate, burst or unit can never work.
 */
export function leakyBucket<const Rate extends RateInput>(
  rate: Readable<Rate>,
  options: {
    /**
     * The units that may start at once after an idle time. No call may cost more. Defaults to 1, so that calls are
     * always evenly spaced.
     */
    readonly burst?: number | undefined;
    /** The unit that the limit counts. Defaults to `"calls"`. */
    readonly unit?: string | undefined;
  } & ShadowOption = {},
): Limit {
  const read = readOptions("leakyBucket()", LEAKY_BUCKET, options);
  const { burst = 1, unit = "calls", shadow } = read;
  return paced("leaky-bucket", { where: "leakyBucket()", rate, burst, unit, shadow });
}

/** Creates the limit for the short options `rate` and `burst` of a policy. */
export function rateLimit(
  where: string,
  { rate, burst = 1, shadow }: Pick<LimitsOptions, "rate" | "burst" | "shadow">,
): Limit {
  const limit = paced("leaky-bucket", { where, rate, burst, unit: "calls", shadow });
  const named = typeof rate === "object" ? labels.get(rate) : undefined;
  // The label is valid only for this combination of rate and burst.
  return named?.burst === burst ? Object.freeze({ ...limit, label: named.label }) : limit;
}

/**
 * The labels of computed rates. Users see the label instead of the rate. The labels are stored here because a rate
 * object has only the fields `calls` and `per`.
 */
const labels = new WeakMap<
  RateInput & object,
  { readonly burst: number; readonly label: string }
>();

/** Sets the text that users see instead of the rate. The text applies only together with this burst. */
export function labelRate(rate: RateInput & object, burst: number, label: string): void {
  labels.set(rate, { burst, label });
}

/**
 * Creates a limit with a bucket of units that refills at a fixed rate. Calls may use all units of a full bucket at
 * once.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function tokenBucket<const Refill extends RateInput>(
  options: {
    /** The most units that may start at once. */
    readonly capacity: number;
    /** How fast the bucket refills: `"2/s"`. */
    readonly refill: Readable<Refill>;
  } & UnitOption,
): Limit {
  const where = "tokenBucket()";
  const { capacity, refill, unit = "calls", shadow } = readOptions(where, TOKEN_BUCKET, options);
  const given = { rate: refill, rateName: "refill", burst: capacity, unit, shadow };
  return paced("token-bucket", { where, ...given });
}

/**
 * Creates an exact limit: at most `max` units in any window of length `per`. Redis stores one entry for each call in
 * the window.
 *
 * @throws {@link InvalidOptionError} when an argument can never work.
 */
export function slidingLog<const Per extends string>(
  max: number,
  per: Per & ReadableTime<Per>,
  options: UnitOption = {},
): Limit {
  return windowed("sliding-log", "slidingLog()", { max, per, most: 1_000_000, options });
}

/**
 * Creates an approximate limit: about `max` units in any window of length `per`, estimated from two counters. Some
 * windows may contain more units; {@link slidingLog} is exact.
 *
 * @throws {@link InvalidOptionError} when an argument can never work.
 */
export function slidingWindow<const Per extends string>(
  max: number,
  per: Per & ReadableTime<Per>,
  options: UnitOption = {},
): Limit {
  return windowed("sliding-window", "slidingWindow()", { max, per, most: MOST, options });
}

/**
 * Creates a limit of `max` units in each window. Each new window starts with the full amount.
 *
 * @throws {@link InvalidOptionError} when an argument can never work.
 */
export function fixedWindow<const Per extends string>(
  max: number,
  per: Per & ReadableTime<Per>,
  options: UnitOption & {
    /**
     * When windows begin: at multiples of `per` since 1970 (UTC), or each day at a local time. Defaults to `"epoch"`.
     */
    readonly align?: "epoch" | Align | undefined;
  } = {},
): Limit {
  const where = "fixedWindow()";
  const { align = "epoch", ...others } = readOptions(where, FIXED_WINDOW, options);
  const limit = windowed("fixed-window", where, { max, per, most: MOST, options: others });
  if (align === "epoch") return limit;
  if (limit.periodUs !== 86_400_000_000) {
    const remedy = 'windows that begin at a local time last a day: give "1d"';
    throw new InvalidOptionError({ where, option: "per", value: per, remedy });
  }
  return Object.freeze({ ...limit, align: readAlign(where, align) });
}

/** The options of a fixed {@link concurrency} limit. */
export interface ConcurrencyOptions {
  /**
   * If a process dies, its calls count as ended after this time, in ms. Living processes renew the leases of their
   * calls. Defaults to 30,000.
   */
  readonly leaseMs?: number | undefined;
}

/** The options of a {@link concurrency} limit that adapts to the latency of the calls. */
export interface AutoConcurrencyOptions extends ConcurrencyOptions {
  /** What the limit adapts to. Defaults to `"latency"`, the only target. */
  readonly target?: "latency" | undefined;
  /** The limit never falls below this number of calls. Defaults to 1. */
  readonly min?: number | undefined;
  /** The limit never exceeds this number of calls. Defaults to 1,000. */
  readonly max?: number | undefined;
  /**
   * The calls that may run at once during calibration, while the first windows measure the baseline, and while Redis is
   * unreachable. Choose a number that the downstream handles without a queue. Defaults to 20, within `min` and `max`.
   */
  readonly initial?: number | undefined;
  /**
   * How many times the baseline the latency may be before the limit falls: `1.1` is 10 % above the baseline. Raise it if
   * latency varies for other causes than load. Defaults to 1.1.
   */
  readonly tolerance?: number | undefined;
  /** Whether only `max` binds, and the limit is just computed and reported. Defaults to false. */
  readonly shadow?: boolean | undefined;
}

/**
 * Creates a limit of at most `max` simultaneous calls over all replicas. The cost of the calls does not matter.
 *
 * With `"auto"`, all replicas together find the number: it grows while the latency of the calls stays close to its
 * baseline, and falls when calls queue at the downstream, time out or are refused as overloaded.
 *
 * @throws {@link InvalidOptionError} when an argument can never work.
 */
export function concurrency(max: number, options?: ConcurrencyOptions): Limit;
export function concurrency(max: "auto", options?: AutoConcurrencyOptions): Limit;
export function concurrency(
  max: number | "auto",
  options: ConcurrencyOptions | AutoConcurrencyOptions = {},
): Limit {
  if (max === "auto") return adaptive("concurrency()", options);
  const { leaseMs } = readOptions("concurrency()", CONCURRENCY, options);
  assertWhole("concurrency()", "max", max, MOST_AT_ONCE);
  return leased(max, leaseMs);
}

/** The options of {@link budget}. */
export interface BudgetOptions {
  /** The unit that the budget counts, such as `"usd"`. Costs name it: `{ usd: 0.0123 }`. */
  readonly unit: string;
  /** The amount of each period: `500`. Fractions are counted in millionths of the unit. */
  readonly amount: number;
  /** The period. With `{ days: 30 }`, today and the 29 days before it count. */
  readonly per: BudgetPeriod;
  /** The time zone in which periods begin: `"Europe/Berlin"`. Defaults to `"UTC"`. */
  readonly timeZone?: string | undefined;
  /** The first day of a week. Defaults to `"monday"`, as in ISO 8601. */
  readonly weekStart?: "monday" | "sunday" | undefined;
  /** Whether the rest of a period is added to the next one. `max` bounds what is added. Defaults to false. */
  readonly carryOver?: boolean | { readonly max: number } | undefined;
  /**
   * The parts of the amount at which the bucket emits `budget` events: `[0.5, 0.8]`. Over all processes, each part is
   * reported once in a period. Defaults to none.
   */
  readonly warnAt?: readonly number[] | undefined;
  /**
   * What happens to calls that do not fit into the rest of the period. `"refuse"` rejects them at once with
   * `BudgetSpentError`, except the jobs of queues, which wait. With `"wait"`, all calls wait for the next period.
   * Defaults to `"refuse"`.
   */
  readonly onSpent?: "refuse" | "wait" | undefined;
  /**
   * How long a call may take that settles its cost afterwards, in ms. If it has not settled by then, for example because
   * its process died, its estimate is given back. A later settlement still counts in full. Defaults to 600,000.
   */
  readonly reserveMs?: number | undefined;
  /** The HTTP status with which servers refuse calls that do not fit. Defaults to 429. */
  readonly httpStatus?: 402 | 429 | undefined;
}

/**
 * Creates a limit on what calls may spend in a calendar period: `budget({ unit: "usd", amount: 500, per: "month" })`.
 * It counts in whole millionths of the unit, over all replicas, and its state outlives changes of the policy.
 *
 * @throws {@link InvalidOptionError} when an option can never work.
 */
export function budget(options: BudgetOptions): Limit {
  const where = "budget()";
  const read = readOptions(where, BUDGET, options);
  const { unit, amount, per, carryOver = false, onSpent = "refuse" } = read;
  const isRolling = rollingDaysOf({ per }) > 0;
  const assertUsed = (option: "carryOver" | "weekStart", isUsed: boolean, remedy: string): void => {
    const value = read[option];
    if (isUsed || value === undefined || value === false) return;
    throw new InvalidOptionError({ where, option, value, remedy });
  };
  assertUsed(
    "carryOver",
    !isRolling,
    "rolling days have no end at which a rest remains; leave it out",
  );
  assertUsed("weekStart", per === "week", 'only budgets per "week" have one; leave it out');
  const mostCarried = carryOver === true ? undefined : carryOver === false ? 0 : carryOver.max;
  const count = toMillionths(amount);
  // A call that may wait for another period must fit into one.
  const mostUnits = onSpent === "wait" ? amount + (mostCarried ?? MOST_UNITS - amount) : MOST_UNITS;
  return Object.freeze({
    kind: "budget",
    unit,
    count,
    periodUs: periodUsOf(per),
    capacity: toMillionths(Math.min(mostUnits, MOST_UNITS)),
    budget: Object.freeze({
      per,
      timeZone: read.timeZone ?? "UTC",
      weekStart: read.weekStart ?? "monday",
      mostCarried,
      warnAt: Object.freeze([...(read.warnAt ?? [])]),
      onSpent,
      reserveMs: read.reserveMs ?? 600_000,
      httpStatus: read.httpStatus ?? 429,
    }),
  });
}

/** Creates the limit for the short option `concurrency` of a policy. */
export function inParallel(where: string, max: number | "auto"): Limit {
  if (max === "auto") return adaptive(where, {});
  assertWhole(where, "concurrency", max, MOST_AT_ONCE);
  return leased(max);
}

function leased(max: number, leaseMs = 30_000): Limit {
  const periodUs = leaseMs * 1_000;
  return Object.freeze({ kind: "concurrency", unit: "calls", count: max, periodUs, capacity: max });
}

function adaptive(where: string, given: AutoConcurrencyOptions): Limit {
  const { leaseMs, ...read } = readOptions(where, AUTO_CONCURRENCY, given);
  const { max = Math.max(AUTO.max, read.min ?? 1, read.initial ?? 1), tolerance = AUTO.tolerance } =
    read;
  const { min = AUTO.min } = read;
  const { initial = Math.min(max, Math.max(min, AUTO.initial)) } = read;
  if (min > max) {
    const remedy = `give at most max, which is ${max}`;
    throw new InvalidOptionError({ where, option: "min", value: min, remedy });
  }
  if (initial < min || initial > max) {
    const remedy = `give a whole number from min to max, which are ${min} and ${max}`;
    throw new InvalidOptionError({ where, option: "initial", value: initial, remedy });
  }
  return Object.freeze({
    ...leased(max, leaseMs),
    kind: "adaptive-concurrency",
    adaptive: Object.freeze({
      target: "latency",
      min,
      initial,
      tolerance: Math.round(tolerance * 1_000) / 1_000,
      ...(read.shadow === true && { shadow: true }),
    } as const),
  });
}

interface ShadowOption {
  /** Whether the limit only counts the calls that it would have delayed, and delays no call. Defaults to false. */
  readonly shadow?: boolean | undefined;
}

interface UnitOption extends ShadowOption {
  /** The unit that the limit counts. Defaults to `"calls"`. */
  readonly unit?: string | undefined;
}

/**
 * Returns the `shadow` field for shadow limits, and no field for other limits, so that their stored texts do not
 * change.
 */
function shadowOf(shadow: boolean | undefined): Pick<Limit, "shadow"> {
  return shadow === true ? { shadow } : {};
}

function paced(
  kind: string,
  given: {
    where: string;
    rate: RateInput | undefined;
    burst: number;
    unit: string;
    shadow: boolean | undefined;
    rateName?: string;
  },
): Limit {
  const { where, rate, burst, unit, rateName = "rate" } = given;
  const { count, periodUs } = parseRate(where, rate, rateName);
  assertWhole(where, ruleOf(kind).capacityName, burst, mostOf({ kind, count, periodUs }));
  const limit = { kind, unit, count, periodUs, capacity: burst };
  return Object.freeze({ ...limit, ...labelOf(limit, rate!), ...shadowOf(given.shadow) });
}

/** Returns a label if the rate was declared in other numbers than its lowest terms, such as `"60/min"` for `"1/s"`. */
function labelOf(limit: Limit, rate: RateInput): Pick<Limit, "label"> {
  // A rate object is usually computed by code, so its original numbers need no label.
  if (typeof rate !== "string") return {};
  const shown = formatRate(limit);
  const declared = declaredRate(rate);
  if (declared === shown) return {};
  return { label: ruleOf(limit.kind).format(limit).replace(shown, declared) };
}

function windowed(
  kind: string,
  where: string,
  given: { max: number; per: string; most: number; options: UnitOption },
): Limit {
  const { unit = "calls", shadow } = readOptions(where, OF_UNIT, given.options);
  const periodUs = parsePeriod(where, "per", given.per);
  const max = given.max;
  assertWhole(where, "max", max, Math.min(given.most, mostOf({ kind, count: max, periodUs })));
  const limit = { kind, unit, count: max, periodUs, capacity: max };
  return Object.freeze({ ...limit, ...shadowOf(shadow) });
}

/** Returns the largest capacity at which a double represents every state of the limit exactly. */
function mostOf({ kind, count, periodUs }: Pick<Limit, "kind" | "count" | "periodUs">): number {
  const { isRate, isBudget, doesDrain, doesRenew } = ruleOf(kind);
  if (!isRate) return MOST_AT_ONCE;
  if (isBudget === true) return MOST_UNITS * MILLIONTHS;
  // A limit that renews in windows counts only units, never units × time.
  if (doesRenew === true) return MOST;
  if (doesDrain !== true) return Math.floor(MAX_LEVEL / periodUs / 2);
  // The highest level that a draw can store is the sum of a full burst, a full horizon, and one call that is charged
  // before it starts.
  return Math.floor((MAX_LEVEL - HORIZON_US * count) / (3 * periodUs));
}

function assertWhole(where: string, option: string, value: unknown, most: number): void {
  if (Number.isSafeInteger(value) && (value as number) >= 1 && (value as number) <= most) return;
  const remedy = `give a whole number from 1 to ${most}`;
  throw new InvalidOptionError({ where, option, value, remedy });
}

const NAMES = new Set([
  "kind",
  "unit",
  "count",
  "periodUs",
  "capacity",
  "align",
  "label",
  "shadow",
  "budget",
  "adaptive",
]);
const LONGEST_LABEL = 100;

/**
 * True if one of the functions that create limits could have created the value. Limits from other replicas arrive
 * through Redis, so they need this check.
 */
export function isLimit(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const {
    kind,
    unit,
    count,
    periodUs,
    capacity,
    align,
    label,
    shadow,
    budget: terms,
    adaptive: adaptation,
  } = value as Partial<Limit>;
  const numbers = [count, periodUs, capacity];
  const areWhole = numbers.every((each) => Number.isSafeInteger(each) && each! > 0);
  const isKnown = RULES.has(kind as string) && UNIT.safeParse(unit).success;
  if (!isKnown || !areWhole || (align !== undefined && !isAlign(align))) return false;
  if (!Object.keys(value).every((name) => NAMES.has(name))) return false;
  if (label !== undefined && !isLabel(label)) return false;
  const { isRate, isBudget = false } = ruleOf(kind!);
  if (isBudget ? !isBudgetOf(terms, periodUs!) : terms !== undefined) return false;
  if ((kind === "adaptive-concurrency") !== isAdaptation(adaptation, count!)) return false;
  if (shadow !== undefined && (shadow !== true || !isRate || isBudget)) return false;
  return capacity! <= mostOf({ kind: kind!, count: count!, periodUs: periodUs! });
}

/** True if the value is the adaptive terms of a limit with this maximum. */
function isAdaptation(terms: unknown, max: number): boolean {
  const read = ADAPTIVE_TERMS.safeParse(terms);
  return read.success && read.data.min <= read.data.initial && read.data.initial <= max;
}

function isBudgetOf(terms: unknown, periodUs: number): boolean {
  const read = BUDGET_TERMS.safeParse(terms);
  return read.success && periodUs === periodUsOf(read.data.per);
}

/** Checks a label. Logs and headers show labels, and the labels of other replicas arrive through Redis. */
function isLabel(label: unknown): boolean {
  return typeof label === "string" && label.length <= LONGEST_LABEL && /^[\w .,/]+$/.test(label);
}

/** The options for the limits of a bucket or of one key. */
export interface LimitsOptions<Rate extends RateInput = RateInput> {
  /** How fast calls may start, over all replicas: `"100/s"`. This is short for `leakyBucket(rate, { burst })`. */
  readonly rate?: Readable<Rate> | undefined;
  /** The calls that may start at once after an idle time. Defaults to 1, so that calls are always evenly spaced. */
  readonly burst?: number | undefined;
  /** Whether `rate` only counts the calls that it would have delayed, and delays no call. Defaults to false. */
  readonly shadow?: boolean | undefined;
  /**
   * The most simultaneous calls over all replicas. This is short for `concurrency(max)`. With `"auto"`, the limit adapts
   * to the latency of the calls.
   */
  readonly concurrency?: number | "auto" | undefined;
  /** Additional limits. A call starts when all limits allow it. */
  readonly limits?: readonly Limit[] | undefined;
}

/** A limit in a rules file. A string is the rate of a leaky bucket: `"500/min"`. */
export type LimitData = string | { readonly kind: string };

interface FieldSchemas {
  readonly rate: z.ZodType<RateInput>;
  readonly per: z.ZodType<string>;
  readonly units: z.ZodType<number>;
  readonly beside: z.core.$ZodLooseShape;
}

/** The fields of all kinds of limits in a rules file. The functions above check the values. */
interface Fields extends UnitOption {
  readonly rate: RateInput;
  readonly refill: RateInput;
  readonly capacity: number;
  readonly max: number;
  readonly per: string;
  readonly leaseMs?: number;
}

function ofWindow(units: z.ZodType<number>): z.ZodType<number> {
  return units.describe("How many units may start in one window.");
}

/** For each kind of limit: its fields in a rules file, and the function that creates the limit from those fields. */
const IN_FILES: Readonly<
  Record<
    string,
    {
      readonly fields: (schemas: FieldSchemas) => z.core.$ZodLooseShape;
      readonly make: (fields: Fields) => Limit;
    }
  >
> = {
  "leaky-bucket": {
    fields: ({ rate, units, beside }) => ({
      rate,
      burst: units
        .optional()
        .describe(
          "How many units may start at once after an idle time. A call that costs more can never start. Defaults to 1.",
        ),
      ...beside,
    }),
    make: ({ rate, ...options }) => leakyBucket(rate as "1/s", options),
  },
  "token-bucket": {
    fields: ({ rate, units, beside }) => ({
      refill: rate,
      capacity: units.describe("How many units fit in the bucket, and may start at once."),
      ...beside,
    }),
    make: ({ refill, ...options }) => tokenBucket({ ...options, refill: refill as "1/s" }),
  },
  "sliding-log": {
    fields: ({ units, per, beside }) => ({ max: ofWindow(units), per, ...beside }),
    make: ({ max, per, ...options }) => slidingLog(max, per as "1s", options),
  },
  "sliding-window": {
    fields: ({ units, per, beside }) => ({ max: ofWindow(units), per, ...beside }),
    make: ({ max, per, ...options }) => slidingWindow(max, per as "1s", options),
  },
  "fixed-window": {
    fields: ({ units, per, beside }) => ({
      max: ofWindow(units),
      per,
      ...beside,
      align: z
        .union([
          z.literal("epoch"),
          z
            .strictObject({
              at: z.string().describe("The local time at which a window begins, such as 00:00."),
              timeZone: z.string().describe("The time zone, such as Europe/Berlin."),
            })
            .describe("A local time."),
        ])
        .optional()
        .describe(
          'When windows begin. "epoch", the default: at multiples of per since 1970 (UTC). With per: 1d, a local time: { at: "00:00", timeZone: "Europe/Berlin" }.',
        ),
    }),
    make: ({ max, per, ...options }) => fixedWindow(max, per as "1s", options),
  },
  concurrency: {
    fields: () => ({
      max: wholeNumber(1, MOST_AT_ONCE, "calls").describe("How many calls may run at once."),
      leaseMs: wholeNumber(1_000, LONGEST_MS, "milliseconds")
        .optional()
        .describe(
          "How many ms after the death of its process a call counts as ended. Defaults to 30000.",
        ),
    }),
    make: ({ max, ...options }) => concurrency(max, options),
  },
  "adaptive-concurrency": {
    fields: () => ({
      target: TARGET.optional().describe("What the limit adapts to: latency, the default."),
      min: AT_ONCE.optional().describe(
        "The limit never falls below this number of calls. Defaults to 1.",
      ),
      max: AT_ONCE.optional().describe(
        "The limit never exceeds this number of calls. Defaults to 1000.",
      ),
      initial: AT_ONCE.optional().describe(
        "How many calls may run at once while the baseline is measured. Defaults to 20.",
      ),
      tolerance: TOLERANCE.optional().describe(
        "How many times the baseline the latency may be before the limit falls. Defaults to 1.1.",
      ),
      shadow: A_SHADOW.describe(
        "If true, only max binds, and the limit is just computed and reported.",
      ),
      leaseMs: CONCURRENCY.shape.leaseMs.describe(
        "How many ms after the death of its process a call counts as ended. Defaults to 30000.",
      ),
    }),
    make: (fields) => concurrency("auto", fields as AutoConcurrencyOptions),
  },
  budget: {
    fields: () => ({
      unit: UNIT.describe("The unit that the budget counts, such as usd."),
      amount: AMOUNT.describe("The amount of each period. Fractions count in millionths."),
      per: PER.describe("The period: day, week, month, quarter, year, or { days: 30 }."),
      timeZone: TIME_ZONE.optional().describe(
        "The time zone in which periods begin, such as Europe/Berlin. Defaults to UTC.",
      ),
      weekStart: WEEK_START.optional().describe("The first day of a week. Defaults to monday."),
      carryOver: BUDGET.shape.carryOver.describe(
        "Whether the rest of a period is added to the next one; { max } bounds it. Defaults to false.",
      ),
      warnAt: WARN_AT.optional().describe(
        "The parts of the amount at which a warning is emitted: [0.5, 0.8].",
      ),
      onSpent: ON_SPENT.optional().describe(
        "Whether calls that do not fit are refused or wait for the next period. Defaults to refuse.",
      ),
      reserveMs: RESERVE_MS.optional().describe(
        "How many ms a call may take until its reservation is given back. Defaults to 600000.",
      ),
      httpStatus: HTTP_STATUS.optional().describe(
        "The HTTP status with which servers refuse calls that do not fit: 402 or 429, the default.",
      ),
    }),
    make: (fields) => budget(fields as unknown as BudgetOptions),
  },
};

/**
 * Creates the schemas for limits in a rules file. This is a function so that a process without a rules file does not
 * create the schemas.
 *
 * @internal
 */
export function limitSchemas(): {
  readonly rate: z.ZodType<RateInput>;
  readonly units: z.ZodType<number>;
  readonly shadow: z.ZodType<boolean | undefined>;
  readonly limit: z.ZodType<LimitData>;
} {
  const rate = z
    .union(
      [
        z.string(),
        z.strictObject({
          calls: wholeNumber(1, MOST, "calls").describe("The number of calls in the period."),
          per: z.string().describe("The period, such as 1s or 5min."),
        }),
      ],
      { error: "give a rate such as 100/s, 60/min, 5000/h or 1/2s" },
    )
    .describe("How fast: 100/s, 60/min, 5000/h, 1/2s, or { calls, per }.");
  const per = z
    .string({ error: "give a time such as 1s, 5min or 1d" })
    .describe("How long the window is: 1s, 5min, 1d.");
  const unit = UNIT.optional().describe(
    "The unit that the limit counts, such as tokens. Defaults to calls.",
  );
  const units = wholeNumber(1, MOST, "units");
  const shadow = A_SHADOW.describe(
    "If true, the limit delays no call. It only counts the calls that it would have delayed.",
  );
  const schemas = { rate, per, units, beside: { unit, shadow } };
  const kinds = Object.entries(IN_FILES).map(([kind, { fields }]) =>
    z.strictObject({ kind: z.literal(kind).describe("The kind of limit."), ...fields(schemas) }),
  );
  const limit = z
    .union([
      z.string().describe("A leaky bucket by its rate: 500/min."),
      z.discriminatedUnion(
        "kind",
        kinds as unknown as [z.ZodObject<{ kind: z.ZodLiteral<string> }>],
      ),
    ])
    .describe("One limit.");
  return { rate, units, shadow, limit };
}

/** @throws {@link InvalidOptionError} when the limit can never work. */
export function limitOf(given: LimitData): Limit {
  if (typeof given === "string") return leakyBucket(given as "1/s");
  const { kind, ...fields } = given;
  if (Object.hasOwn(IN_FILES, kind)) return IN_FILES[kind]!.make(fields as Fields);
  const remedy = `give ${orList(Object.keys(IN_FILES))}`;
  throw new InvalidOptionError({ where: "", option: "kind", value: kind, remedy });
}

/** Lists the functions that create limits, for error messages. */
export function limitMakers(): string {
  const names = Object.keys(IN_FILES).map((kind) =>
    kind.replaceAll(/-(.)/g, (_all, letter: string) => letter.toUpperCase()),
  );
  return orList(names.map((name) => `${name}()`));
}

function orList(names: readonly string[]): string {
  return `${names.slice(0, -1).join(", ")} or ${names.at(-1)}`;
}

import * as z from "zod";
import { atPath, InvalidOptionError } from "../errors.ts";
import { firstOfText, headsOfText } from "../key-path.ts";
import { hasPace } from "../limits/registry.ts";
import { formatRate, parseRate, type RateInput } from "../limits/rate.ts";
import type { Limit } from "../limits/rule.ts";
import { readOptions } from "../input/options.ts";
import { LEAST_WEIGHT, MOST_WEIGHT } from "../input/queue-settings.ts";
import type { KeyTurns } from "../store.ts";

/** How calls with different keys share the limits of a bucket. */
export interface FairOptions {
  /**
   * How many turns a key gets for each turn of weight 1, from 0.001 to 1,000, for at most 200 keys. The path
   * `["acme", "orders"]` is written as `"acme/orders"`. Defaults to 1 for each key.
   */
  readonly weights?: Readonly<Record<string, number>> | undefined;
  /**
   * The part of a shared limit that a key is guaranteed: `{ acme: "10/s" }`, or `{ acme: { tokens: "9000/min" } }`. Only
   * the first name of a path has a floor. Pending calls of the key get that much before all turns. The other keys use
   * what the key leaves unused. The floors of a unit must fit into the limit. At most 200 keys have a floor. Defaults to
   * no floors.
   */
  readonly floors?:
    | Readonly<Record<string, RateInput | Readonly<Record<string, RateInput>>>>
    | undefined;
  /**
   * The part of the rate that critical calls of all keys may take before all turns, from 0.01 to 1. Further critical
   * calls take turns. Defaults to 0.9.
   */
  readonly critical?: number | undefined;
}

/** A guaranteed part of a limit that all keys share. */
interface Floor {
  readonly unit: string;
  readonly count: number;
  readonly periodUs: number;
  /** The number of that limit, from 0. */
  readonly limit: number;
}

/** Fairness in a policy. */
export interface Fair {
  readonly weights: Readonly<Record<string, number>>;
  readonly floors: Readonly<Record<string, Floor>>;
  readonly criticalPerMille: number;
}

const DEFAULT_CRITICAL = 0.9;
const EVEN: Fair = Object.freeze({
  weights: {},
  floors: {},
  criticalPerMille: DEFAULT_CRITICAL * 1_000,
});
/** The most keys with a weight, and with a floor. Each draw carries the policy, so a longer list slows all draws. */
const MOST_KEYS = 200;
const WEIGHT = { error: `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}` };
const PART = { error: "give a part of the rate, from 0.01 to 1" };
const FORMS = "give true, false, or { weights, floors, critical }";

/**
 * Returns the schema of `fair` without its Boolean forms. In code, {@link compileFair} checks the rates.
 *
 * @internal
 */
export function fairSchema(rate: z.ZodType<RateInput>) {
  const weight = z.number(WEIGHT).min(LEAST_WEIGHT, WEIGHT).max(MOST_WEIGHT, WEIGHT);
  return z.strictObject({
    weights: ofFewKeys(weight)
      .optional()
      .describe("How many turns each key gets for each turn of a key of weight 1."),
    floors: ofFewKeys(z.union([rate, z.record(z.string(), rate)]))
      .optional()
      .describe("The guaranteed part of keys: a rate, or a rate by unit."),
    critical: z
      .number(PART)
      .min(0.01, PART)
      .max(1, PART)
      .optional()
      .describe("The part of the rate that critical calls may take before all turns."),
  });
}

function ofFewKeys<Value extends z.ZodType>(value: Value) {
  const error = `give at most ${MOST_KEYS} keys; keys with the same limits can share one name as the head of a path`;
  return z
    .record(z.string(), value)
    .refine((given) => Object.keys(given).length <= MOST_KEYS, { error });
}

const OPTIONS = fairSchema(z.custom<RateInput>());

/**
 * Reads the option `fair`. `limits` are those that all keys share.
 *
 * @throws {@link InvalidOptionError} when a weight is invalid, when a floor has no limit of its unit, or when the floors
 *   are more than a limit gives.
 */
export function compileFair(
  where: string,
  given: unknown,
  limits: readonly Limit[],
): Fair | undefined {
  if (given === false) return undefined;
  if (given === true || given === undefined) return EVEN;
  if (typeof given !== "object" || given === null) {
    throw new InvalidOptionError({ where, option: "fair", value: given, remedy: FORMS });
  }
  return atPath("fair", () => compileOptions(where, readOptions(where, OPTIONS, given), limits));
}

function compileOptions(
  where: string,
  { weights = {}, floors = {}, critical = DEFAULT_CRITICAL }: z.output<typeof OPTIONS>,
  limits: readonly Limit[],
): Fair {
  const compiled = inOrder(floors).map(
    ([key, floor]) => [key, compileFloor(where, key, floor, limits)] as const,
  );
  assertWithin(
    where,
    floors,
    compiled.map(([, floor]) => floor),
    limits,
  );
  if (critical === DEFAULT_CRITICAL && compiled.length === 0 && Object.keys(weights).length === 0) {
    return EVEN;
  }
  return Object.freeze({
    weights: Object.freeze(Object.fromEntries(inOrder(weights))),
    floors: Object.freeze(Object.fromEntries(compiled)),
    criticalPerMille: Math.round(critical * 1_000),
  });
}

/** Returns the entries in the order of their names, so that equal options have equal texts. */
function inOrder<Value>(table: Readonly<Record<string, Value>>): (readonly [string, Value])[] {
  return Object.entries(table).toSorted(([a], [b]) => (a < b ? -1 : 1));
}

/**
 * Returns how keys take turns after other limits have replaced those of the floors. Floors of units that no limit counts
 * any more are left out.
 */
export function fairUnder(fair: Fair | undefined, limits: readonly Limit[]): Fair | undefined {
  if (fair === undefined || Object.keys(fair.floors).length === 0) return fair;
  const floors = Object.entries(fair.floors).flatMap(([key, floor]) => {
    const limit = limitOfUnit(limits, floor.unit);
    return limit === -1 ? [] : [[key, { ...floor, limit }] as const];
  });
  return Object.freeze({ ...fair, floors: Object.freeze(Object.fromEntries(floors)) });
}

/** True if the options name keys. Then the keys must share a limit. */
export function namesKeys(given: unknown): given is FairOptions {
  if (typeof given !== "object" || given === null) return false;
  return ["weights", "floors"].some(
    (name) => (given as Record<string, unknown>)[name] !== undefined,
  );
}

/** @throws {@link InvalidOptionError} when the options name keys, but the keys share no limit. */
export function assertShared(where: string, given: unknown, limits: readonly Limit[]): void {
  if (limits.length > 0 || !namesKeys(given)) return;
  const option = given.weights === undefined ? "fair.floors" : "fair.weights";
  const value = given.weights ?? given.floors;
  const remedy =
    "the keys of this bucket share no limit, so they take no turns; leave it out, or give a limit for all calls";
  throw new InvalidOptionError({ where, option, value, remedy });
}

function compileFloor(
  where: string,
  key: string,
  given: RateInput | Readonly<Record<string, RateInput>>,
  limits: readonly Limit[],
): Floor {
  const isRate = typeof given !== "object" || given === null || "per" in given;
  const units = isRate ? [["calls", given as RateInput] as const] : Object.entries(given);
  const option = `floors.${key}`;
  const [first, ...others] = units;
  if (first === undefined || others.length > 0) {
    const remedy = 'give the floor of a key in one unit, such as "10/s" or { tokens: "9000/min" }';
    throw new InvalidOptionError({ where, option, value: given, remedy });
  }
  const [unit, rate] = first;
  const { count, periodUs } = parseRate(where, rate, isRate ? option : `${option}.${unit}`);
  const limit = limitOfUnit(limits, unit);
  if (limit === -1 && limits.length > 0) {
    const remedy = `a floor is a part of a rate that all keys share, and this bucket has no such rate of ${unit}`;
    throw new InvalidOptionError({ where, option, value: given, remedy });
  }
  return { unit, count, periodUs, limit };
}

function limitOfUnit(limits: readonly Limit[], unit: string): number {
  return limits.findIndex((each) => each.unit === unit && hasPace(each.kind));
}

/** A limit must give all floors of its unit together. */
function assertWithin(
  where: string,
  value: unknown,
  floors: readonly Floor[],
  limits: readonly Limit[],
): void {
  for (const { unit, count, periodUs } of limits.filter(({ kind }) => hasPace(kind))) {
    const sum = floors
      .filter((floor) => floor.unit === unit)
      .reduce((all, floor) => all + floor.count / floor.periodUs, 0);
    // Rates are whole numbers, so a sum of floors exceeds the limit by more than this or not at all.
    if (sum <= (count / periodUs) * (1 + 1e-12)) continue;
    const [most, all] = [count / periodUs, sum].map((perUs) => +(perUs * 1e6).toPrecision(6));
    const remedy = `the floors add up to ${all} ${unit} a second, and the limit gives ${most}; lower them`;
    throw new InvalidOptionError({ where, option: "floors", value, remedy });
  }
}

/** The parts of a policy that say how keys take turns. */
interface FairPolicy {
  readonly fair?: Fair | undefined;
  readonly limits: readonly Limit[];
}

/** A call whose key takes turns. */
interface TurnsCall {
  readonly key: string;
  /** What the call costs under each limit that all keys share, and then under those of its key. */
  readonly costs: readonly number[];
  /** The weights that the queue of a job gives to each level of its key. Those of the bucket go before them. */
  readonly laneWeights?: readonly number[] | undefined;
}

/** How the key of a call takes turns. */
export function turnsOfKey(
  { weights, floors, criticalPerMille }: Fair,
  { key, costs, laneWeights = [] }: TurnsCall,
): KeyTurns {
  const first = firstOfText(key);
  const floor = Object.hasOwn(floors, first) ? floors[first] : undefined;
  const floorUs =
    floor === undefined ? 0 : Math.ceil((costs[floor.limit]! * floor.periodUs) / floor.count);
  return {
    names: key,
    weights: headsOfText(key).map(
      (head, level) => weightOf(weights, head) ?? laneWeights[level] ?? 1,
    ),
    isPending: false,
    floorUs,
    criticalPerMille,
  };
}

/** Returns the weight of each level of a key, the widest first. Each defaults to 1. */
export function weightsOfKey(fair: Fair | undefined, key: string): readonly number[] {
  return headsOfText(key).map((head) => weightOf(fair?.weights ?? {}, head) ?? 1);
}

function weightOf(weights: Fair["weights"], head: string): number | undefined {
  const name = head.replaceAll("\u001F", "/");
  return Object.hasOwn(weights, name) ? weights[name] : undefined;
}

/** Fairness in the text of a policy: false if calls start in the order of their arrival, left out if it is the default. */
export type FairText = Fair | boolean | undefined;

export function fairText(fair: Fair | undefined): FairText {
  return fair === EVEN ? undefined : (fair ?? false);
}

export function readFairText(text: FairText): Fair | undefined {
  return text === undefined || text === true ? EVEN : text || undefined;
}

/** True if the text of a policy from another process can be read by {@link readFairText}. */
export function isFairText(text: unknown): text is FairText {
  if (text === undefined || typeof text === "boolean") return true;
  const { weights, floors, criticalPerMille } = Object(text) as Partial<Fair>;
  return (
    [weights, floors].every((each) => typeof each === "object") && criticalPerMille !== undefined
  );
}

/** The most keys that {@link formatFair} names. */
const MOST_NAMED = 5;

/** Formats how keys take turns: `"weights gold 2; floors small 20/s"`. Returns an empty text for equal turns. */
export function formatFair(fair: Fair | undefined): string {
  if (fair === undefined) return "keys take no turns";
  const { weights, floors, criticalPerMille } = fair;
  const part = criticalPerMille / 1_000;
  const texts = [
    namedKeys(
      "weights",
      Object.entries(weights).map(([key, weight]) => `${key} ${weight}`),
    ),
    namedKeys(
      "floors",
      Object.entries(floors).map(([key, floor]) => `${key} ${formatFloor(floor)}`),
    ),
    part === DEFAULT_CRITICAL ? "" : `critical calls up to ${part} of the rate`,
  ];
  return texts.filter((text) => text !== "").join("; ");
}

function namedKeys(what: string, keys: readonly string[]): string {
  if (keys.length === 0) return "";
  const named = keys.length > MOST_NAMED ? [...keys.slice(0, MOST_NAMED), "…"] : keys;
  return `${what} ${named.join(", ")}`;
}

function formatFloor({ unit, ...rate }: Floor): string {
  return unit === "calls" ? formatRate(rate) : `${formatRate(rate)} ${unit}`;
}

/** The floor of a key. */
export interface KeyFloor {
  /** The first name of the key. */
  readonly name: string;
  /** The part of its shared limit that the floor guarantees, from 0 to 1. */
  readonly part: number;
  /** The guaranteed calls a second. Undefined for a floor in another unit. */
  readonly callsPerSecond: number | undefined;
}

/** Returns the floors of a policy. */
export function floorsOf({ fair, limits }: FairPolicy): readonly KeyFloor[] {
  return Object.entries(fair?.floors ?? {}).map(([name, { unit, count, periodUs, limit }]) => {
    const shared = limits[limit]!;
    const part = count / periodUs / (shared.count / shared.periodUs);
    return { name, part, callsPerSecond: unit === "calls" ? (count / periodUs) * 1e6 : undefined };
  });
}

/** Returns the floor of a key as text: `"20/s"`. Undefined if the key has none. */
export function floorOf({ floors }: Fair, key: string): string | undefined {
  const first = firstOfText(key);
  return Object.hasOwn(floors, first) ? formatFloor(floors[first]!) : undefined;
}

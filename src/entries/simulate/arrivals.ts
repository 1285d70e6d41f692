import * as z from "zod";
import { InvalidOptionError } from "../../core/errors.ts";
import { KEY_PATH } from "../../core/input/key-options.ts";
import type { Key } from "../../core/key-path.ts";
import { likelyOptions, PRIORITY, type Priority } from "../../core/input/options.ts";
import { checkCost, type Cost } from "../../throttle/costs.ts";
import { createRandom, exponential, type Random } from "./random.ts";

/** One call that arrives at a replica. */
export interface Arrival {
  /** When the call arrives, in ms from the start of the simulation. Not before the arrival ahead of it in the list. */
  readonly atMs: number;
  readonly key?: Key | undefined;
  /** Defaults to one call. */
  readonly cost?: Cost | undefined;
  /** Defaults to `"normal"`. */
  readonly priority?: Priority | undefined;
  /** The number of the replica, from 0. Defaults to one that is drawn at random. */
  readonly replica?: number | undefined;
}

/** A description of calls, from which the seed draws each arrival. */
export interface GeneratedArrivals {
  /** The mean number of calls per second. */
  readonly ratePerSecond: number;
  /** For how long calls arrive, in ms. */
  readonly durationMs: number;
  /** When the first call may arrive, in ms from the start of the simulation. Defaults to 0. */
  readonly startMs?: number | undefined;
  /**
   * `"even"`: the same time between calls. `"poisson"`: each call arrives independently of the others. `"bursts"`:
   * groups of calls arrive together, each group independently. Defaults to `"poisson"`.
   */
  readonly pattern?: "even" | "poisson" | "bursts" | undefined;
  /** The number of calls in each burst, with `pattern: "bursts"`. Defaults to 10. */
  readonly burst?: number | undefined;
  /**
   * The keys of the calls: a number of keys (`key-1`, `key-2`, …), a list of keys with equal shares, or the weight of
   * each key. Defaults to calls without a key.
   */
  readonly keys?: number | readonly string[] | Readonly<Record<string, number>> | undefined;
  /** The weight of each priority: `{ critical: 1, low: 9 }`. Defaults to `normal` for all calls. */
  readonly priorities?: Partial<Readonly<Record<Priority, number>>> | undefined;
  /** The cost of each call. Defaults to one call. */
  readonly cost?: Cost | undefined;
}

/** The calls of a simulation: single arrivals in the order of time, or descriptions of arrivals. */
export type Arrivals = Iterable<Arrival> | GeneratedArrivals | readonly GeneratedArrivals[];

/**
 * Reads arrivals one by one. `next` sets the other fields to those of the next arrival, so that no object is created
 * for each call. After the last arrival, `atMs` is Infinity.
 */
export interface ArrivalCursor {
  atMs: number;
  /** The encoded key. */
  key: string | undefined;
  cost: Cost | undefined;
  priority: Priority;
  /** -1 if any replica may take the call. */
  replica: number;
  next(): void;
}

const WHERE = "simulate()";

/** Opens a cursor at the first arrival. */
export function openArrivals(
  arrivals: Arrivals,
  { seed, replicas }: { readonly seed: number; readonly replicas: number },
): ArrivalCursor {
  if (isGenerated(arrivals)) return generate([arrivals], seed);
  if (Array.isArray(arrivals) && arrivals.length > 0 && isGenerated(arrivals[0])) {
    return generate(arrivals as readonly GeneratedArrivals[], seed);
  }
  return listed(arrivals as Iterable<Arrival>, replicas);
}

function isGenerated(arrivals: unknown): arrivals is GeneratedArrivals {
  return typeof arrivals === "object" && arrivals !== null && "ratePerSecond" in arrivals;
}

const COST = z.custom<Cost>().superRefine(checkCost);

/** @throws {@link InvalidOptionError} when a field of an arrival does not match its schema. */
function readWith<Read>(
  schema: z.ZodType<Read>,
  value: unknown,
  index: number,
  field: string,
): Read {
  const read = schema.safeParse(value);
  if (read.success) return read.data;
  throw wrong(index, field, value, read.error.issues[0]!.message);
}

function wrong(index: number, field: string, value: unknown, remedy: string): InvalidOptionError {
  return new InvalidOptionError({
    where: WHERE,
    option: `arrivals[${index}].${field}`,
    value,
    remedy,
  });
}

const FIELDS: ReadonlySet<string> = new Set(["atMs", "key", "cost", "priority", "replica"]);

function unknownField(index: number, field: string, arrival: object): InvalidOptionError {
  const value = (arrival as Readonly<Record<string, unknown>>)[field];
  return wrong(index, field, value, `there is no such field; ${likelyOptions(field, [...FIELDS])}`);
}

function emptyCursor(next: ArrivalCursor["next"]): ArrivalCursor {
  return { atMs: 0, key: undefined, cost: undefined, priority: "normal", replica: -1, next };
}

function listed(arrivals: Iterable<Arrival>, replicas: number): ArrivalCursor {
  const iterator = arrivals[Symbol.iterator]();
  /** The encoded text of each key, so that each is checked once. */
  const known = new Map<Key, string>();
  let index = 0;
  const cursor = emptyCursor(() => {
    const { done, value } = iterator.next();
    if (done === true) {
      cursor.atMs = Infinity;
      return;
    }
    for (const field in value) {
      if (!FIELDS.has(field)) throw unknownField(index, field, value);
    }
    const { atMs, key, cost, priority = "normal", replica } = value;
    if (!(atMs >= cursor.atMs && atMs < Infinity)) {
      throw wrong(
        index,
        "atMs",
        atMs,
        "give a time in ms from 0, and sort the arrivals by their time",
      );
    }
    cursor.key = key === undefined ? undefined : (known.get(key) ?? readKey(key, index));
    if (cost !== undefined && cost !== 1) readWith(COST, cost, index, "cost");
    if (priority !== "normal") readWith(PRIORITY, priority, index, "priority");
    if (
      replica !== undefined &&
      !(Number.isInteger(replica) && replica >= 0 && replica < replicas)
    ) {
      throw wrong(index, "replica", replica, `give a whole number from 0 to ${replicas - 1}`);
    }
    cursor.atMs = atMs;
    cursor.cost = cost;
    cursor.priority = priority;
    cursor.replica = replica ?? -1;
    index += 1;
  });

  function readKey(key: Key, at: number): string {
    const text = readWith(KEY_PATH, key, at, "key");
    known.set(key, text);
    return text;
  }

  cursor.next();
  return cursor;
}

/** Merges the arrivals of several descriptions in the order of time. */
function generate(all: readonly GeneratedArrivals[], seed: number): ArrivalCursor {
  const sources = all
    .map((each, index) => openGenerated(each, createRandom(seed + index * 7_919)))
    .sort((a, b) => a.atMs - b.atMs);
  /** The sources that have begun and not ended. The others begin later than all of these. */
  const open: ArrivalCursor[] = [];
  let begun = 0;
  const cursor = emptyCursor(() => {
    let first = -1;
    for (const [index, each] of open.entries()) {
      if (first < 0 || each.atMs < open[first]!.atMs) first = index;
    }
    while (begun < sources.length && (first < 0 || sources[begun]!.atMs < open[first]!.atMs)) {
      first = open.push(sources[begun]!) - 1;
      begun += 1;
    }
    if (first < 0) {
      cursor.atMs = Infinity;
      return;
    }
    const source = open[first]!;
    cursor.atMs = source.atMs;
    cursor.key = source.key;
    cursor.cost = source.cost;
    cursor.priority = source.priority;
    source.next();
    if (source.atMs === Infinity) open.splice(first, 1);
  });
  cursor.next();
  return cursor;
}

function openGenerated(given: GeneratedArrivals, random: Random): ArrivalCursor {
  const { ratePerSecond, durationMs, startMs = 0, pattern = "poisson", burst = 10 } = given;
  const perMs = ratePerSecond / 1_000;
  const endMs = startMs + durationMs;
  const keyAt = chooser(weightsOf(given.keys), random);
  const priorityAt = chooser(Object.entries(given.priorities ?? { normal: 1 }), random);
  let left = 0;
  let count = 0;
  let atMs = startMs;

  function moveOn(): void {
    if (pattern === "even") atMs = startMs + count / perMs;
    else if (pattern === "poisson") atMs += exponential(random, perMs);
    else if (left === 0) {
      atMs += exponential(random, perMs / burst);
      left = burst;
    }
    left -= 1;
    count += 1;
  }

  const cursor = emptyCursor(() => {
    moveOn();
    cursor.atMs = atMs < endMs ? atMs : Infinity;
    cursor.key = keyAt();
    cursor.priority = priorityAt() as Priority;
  });
  cursor.cost = given.cost;
  cursor.next();
  return cursor;
}

function weightsOf(keys: GeneratedArrivals["keys"]): readonly (readonly [string, number])[] {
  if (keys === undefined) return [];
  if (typeof keys === "number") {
    return Array.from({ length: keys }, (_, index) => [`key-${index + 1}`, 1]);
  }
  if (Array.isArray(keys)) return keys.map((key: string) => [key, 1]);
  return Object.entries(keys as Readonly<Record<string, number>>);
}

/** Returns a function that draws one of the names by their weights. Undefined if there are none. */
function chooser(
  weights: readonly (readonly [string, number])[],
  random: Random,
): () => string | undefined {
  const [first] = weights;
  if (weights.length <= 1) return () => first?.[0];
  let sum = 0;
  const ends = Float64Array.from(weights, ([, weight]) => (sum += weight));
  return () => {
    const at = random() * sum;
    let low = 0;
    let high = ends.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle]! > at) high = middle;
      else low = middle + 1;
    }
    return weights[low]![0];
  };
}

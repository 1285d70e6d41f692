/**
 * The options of a queue that concern its lanes: the weights of keys, and which keys are ordered.
 *
 * Each lane and each parent key has a weight. Weights are read when a job is enqueued or goes back to its lane, and
 * `lua/queue/lanes/lanes-join.lua` stores them. `take_from_lane` in `lua/lib/lanes/take.lua` uses the weights. Each job
 * moves its lane, and each parent above the lane, back in line: by the job's share divided by the weight. A worker that
 * holds jobs of several tenants uses the weights again, in `throttle/waiting/line.ts`.
 *
 * Whether a key is ordered is also read when a job is enqueued, and stored with the job. `lua/lib/lanes/order.lua` then
 * starts the jobs of such a key one after another.
 */
import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { LEAST_WEIGHT, MOST_WEIGHT } from "../../core/input/queue-settings.ts";
import { MOST_LEVELS, namesOfText, type Key, decodeKey } from "../../core/key-path.ts";
import * as z from "zod";
import { readOptions } from "../../core/input/options.ts";
import type { LaneOrder } from "../options.ts";

/**
 * How much of a shared rate each key gets, relative to the other keys. Each weight defaults to 1. For keys that are
 * paths, pass a list with one entry for each level. The first entry weighs first names against one another. Each later
 * entry weighs the names below one parent against one another.
 */
export type Weights = LevelWeights | readonly (PathWeights | undefined)[];

/** The weight for each first name of a key, or a function that returns the weight of a first name. */
type LevelWeights = Readonly<Record<string, number>> | ((key: string) => number);
/** The weight for each name at this level, or a function that returns the weight of a path up to this level. */
type PathWeights = Readonly<Record<string, number>> | ((path: readonly string[]) => number);

/** Returns the weights of a key's lane and of its parent keys, the widest first. Undefined without a key. */
export type WeightsOf = (key: string | undefined) => readonly number[] | undefined;

/**
 * Returns a function that reads the weights of a key.
 *
 * @throws {@link InvalidOptionError} when a table has an invalid weight, or a list has an invalid length. The returned
 * function throws this error when a weight function throws or returns an invalid weight.
 */
export function createWeights(queue: string, weights: Weights = {}): WeightsOf {
  const where = `queue("${queue}")`;
  const remedy = `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`;
  const isByLevel = Array.isArray(weights);
  const levels = (isByLevel ? weights : [weights]) as readonly (Weights | undefined)[];

  function refuse(option: string, value: unknown, why: string, cause?: unknown): never {
    throw new InvalidOptionError({ where, option, value, remedy: why, cause });
  }

  function read(option: string, weight: unknown): number {
    const isWeight = typeof weight === "number" && weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT;
    return isWeight ? weight : refuse(option, weight, remedy);
  }

  function call(option: string, weigh: (of: unknown) => unknown, of: Key): unknown {
    try {
      return weigh(of);
    } catch (cause) {
      const why = `it threw for key ${describeValue(of)} (${reasonOf(cause)}); ${remedy}`;
      return refuse(option, weigh, why, cause);
    }
  }

  function readerOf(
    level: Weights | undefined,
    index: number,
  ): (names: readonly string[]) => number {
    const option = isByLevel ? `weights[${index}]` : "weights";
    if (typeof level === "function") {
      const weigh = level as (of: unknown) => unknown;
      return (names) => {
        const own = names.slice(0, index + 1);
        return read(option, call(option, weigh, isByLevel ? own : own[0]!));
      };
    }
    if (
      level !== undefined &&
      (typeof level !== "object" || level === null || Array.isArray(level))
    )
      return refuse(option, level, "give a number for each name, or a function of the path");
    const table = (level ?? {}) as Readonly<Record<string, number | undefined>>;
    for (const weight of Object.values(table)) read(option, weight ?? 1);
    return (names) => {
      const name = names[index]!;
      return read(option, (Object.hasOwn(table, name) ? table[name] : undefined) ?? 1);
    };
  }

  if (levels.length < 1 || levels.length > MOST_LEVELS) {
    return refuse("weights", weights, `give weights for one to ${MOST_LEVELS} levels`);
  }
  const readers = levels.map(readerOf);
  return (key) =>
    key === undefined
      ? undefined
      : namesOfText(key).map((_name, index, names) => readers[index]?.(names) ?? 1);
}

/**
 * Makes a {@link WeightsOf} safe for a worker, whose jobs are stored already. If the weights of a key cannot be read,
 * the worker uses weight 1, and the lane keeps its stored weight.
 */
export function weightsOrNone(weightsOf: WeightsOf, onError: (error: unknown) => void): WeightsOf {
  return (key) => {
    try {
      return weightsOf(key);
    } catch (error) {
      onError(error);
      return undefined;
    }
  };
}

/**
 * Which keys run their jobs one after another: `true` for all keys, a function that returns true for such a key, or an
 * object with more options.
 */
export type Ordered = boolean | OfKey | OrderedOptions;

type OfKey = (key: Key) => boolean;

interface OrderedOptions {
  /** Which keys are ordered. Defaults to all. */
  readonly keys?: OfKey | undefined;
  /**
   * What happens to a key when one of its jobs becomes a dead letter. With `"skip"`, the next job of the key starts.
   * With `"hold"`, all jobs of the key wait until the dead letter was replayed or purged. A replayed job runs next.
   * Defaults to `"skip"`.
   */
  readonly stuck?: "skip" | "hold" | undefined;
}

const REMEDY = "give true, a function of the key, or { keys, stuck }";
const SHAPE = z.object({
  ordered: z.strictObject({
    keys: z
      .custom<OfKey>((value) => typeof value === "function", {
        error: "give a function of the key",
      })
      .optional(),
    stuck: z.enum(["skip", "hold"], { error: 'give "skip" or "hold"' }).optional(),
  }),
});

/**
 * Returns a function that reads the order of a job's key; undefined means that the key is not ordered.
 *
 * @throws {@link InvalidOptionError} when the option is invalid. If all keys are ordered, the returned function throws
 * this error for a job without a key. It also throws this error when the application's `keys` function fails.
 */
export function createLaneOrders(
  queue: string,
  given: Ordered = false,
): (where: string, key: string | undefined) => LaneOrder | undefined {
  const whose = `queue(${JSON.stringify(queue)})`;
  const ordered = readOrdered(whose, given);
  if (ordered === undefined) return () => undefined;
  const { keys, stuck = "skip" } = ordered;
  const order: LaneOrder = stuck === "hold" ? 2 : 1;

  function isOrdered(isOfKey: OfKey, text: string): boolean {
    const key = decodeKey(text);
    try {
      const answer: unknown = isOfKey(key);
      if (typeof answer === "boolean") return answer;
      const remedy = `it returned ${describeValue(answer)} for key ${describeValue(key)}; return true or false`;
      throw new InvalidOptionError({ where: whose, option: "ordered", value: isOfKey, remedy });
    } catch (cause) {
      if (cause instanceof InvalidOptionError) throw cause;
      const remedy = `it threw for key ${describeValue(key)} (${reasonOf(cause)}); return true or false`;
      throw new InvalidOptionError({
        where: whose,
        option: "ordered",
        value: isOfKey,
        remedy,
        cause,
      });
    }
  }

  return (where, key) => {
    if (key === undefined) {
      if (keys !== undefined) return undefined;
      const remedy = "the queue is ordered by key; give one, the same for all jobs of one line";
      throw new InvalidOptionError({ where, option: "key", value: key, remedy });
    }
    return keys === undefined || isOrdered(keys, key) ? order : undefined;
  };
}

function readOrdered(where: string, given: Ordered): OrderedOptions | undefined {
  if (given === false) return undefined;
  if (given === true) return {};
  if (typeof given === "function") return { keys: given };
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new InvalidOptionError({ where, option: "ordered", value: given, remedy: REMEDY });
  }
  return readOptions(where, SHAPE, { ordered: given }).ordered;
}

/**
 * The weights of lanes and of parent keys. They are read when a job is enqueued or goes back to its lane, and stored by
 * `lua/queue/lanes/lanes-join.lua`. `take_from_lane` in `lua/lib/lanes/take.lua` uses them. Each job moves its lane,
 * and each parent above it, back in line by the job's share divided by the weight. A worker that holds jobs of several
 * tenants uses the weights again, in `throttle/waiting/line.ts`.
 */
import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";
import { LEAST_WEIGHT, MOST_WEIGHT } from "../../core/input/queue-settings.ts";
import { MOST_LEVELS, namesOfText, type Key } from "../../core/key-path.ts";

/**
 * How much of a shared rate each key gets beside the others. Defaults to 1 for each. A list has one entry for each
 * level of paths. The first entry weighs first names against one another, and each next one weighs the names below one
 * parent.
 */
export type Weights = LevelWeights | readonly (PathWeights | undefined)[];

/** By the first name of a key, or a function of it. */
type LevelWeights = Readonly<Record<string, number>> | ((key: string) => number);
/** By the name at this level, or a function of the path up to it. */
type PathWeights = Readonly<Record<string, number>> | ((path: readonly string[]) => number);

/** Reads the weights of a key's lane and of its parent keys, the widest first; undefined without a key. */
export type WeightsOf = (key: string | undefined) => readonly number[] | undefined;

/**
 * Returns a function that reads the weights of a key.
 *
 * @throws {@link InvalidOptionError} when a table has an invalid weight, or a list can never be right. The returned
 * function throws it when a function returns an invalid weight.
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
 * The same for a worker, whose jobs are stored already. If the weights of a key cannot be read, the worker counts
 * weight 1, and the lane keeps the weight that it has.
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

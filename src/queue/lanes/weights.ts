/**
 * The weights of lanes. One is read here when a job is enqueued or goes back to its lane, stored with the lane by
 * `lua/queue/lanes/lanes-join.lua`, and used by `take_from_lane` in `lua/lib/lanes/take.lua`: each job moves its lane back in line
 * by the job's share divided by the lane's weight. A worker that holds jobs of several lanes uses it again, in the line of
 * `throttle/waiting/line.ts`.
 */
import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";

/** How much of a shared rate each key gets beside the others. Defaults to 1 for each key. */
export type Weights = Readonly<Record<string, number>> | OfKey;

type OfKey = (key: string) => number;

const [LEAST_WEIGHT, MOST_WEIGHT] = [0.001, 1_000];

/**
 * Returns what reads the weight of a key's lane; undefined without a key.
 *
 * @throws {@link InvalidOptionError} when the table holds no valid weight; what it returns throws the same for a function.
 */
export function createWeights(
  queue: string,
  weights: Weights = {},
): (key: string | undefined) => number | undefined {
  const where = `queue("${queue}")`;
  const remedy = `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`;

  function read(weight: unknown): number {
    const isWeight = typeof weight === "number" && weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT;
    if (isWeight) return weight;
    throw new InvalidOptionError({ where, option: "weights", value: weight, remedy });
  }

  function call(weigh: (key: string) => number, key: string): number {
    try {
      return weigh(key);
    } catch (cause) {
      const why = `it threw for key ${describeValue(key)} (${reasonOf(cause)}); ${remedy}`;
      throw new InvalidOptionError({ where, option: "weights", value: weigh, remedy: why, cause });
    }
  }

  if (typeof weights === "object") {
    for (const weight of Object.values(weights)) read(weight ?? 1);
  }
  const weightOfKey = (key: string): number =>
    typeof weights === "function"
      ? read(call(weights, key))
      : read((Object.hasOwn(weights, key) ? weights[key] : undefined) ?? 1);
  return (key) => (key === undefined ? undefined : weightOfKey(key));
}

/**
 * The same for a worker, which has its jobs already: a key whose weight cannot be read now counts with weight 1 here,
 * and its lane keeps the weight that it has.
 */
export function weightOrOne(
  weightOf: (key: string | undefined) => number | undefined,
  onError: (error: unknown) => void,
): (key: string | undefined) => number | undefined {
  return (key) => {
    try {
      return weightOf(key);
    } catch (error) {
      onError(error);
      return undefined;
    }
  };
}

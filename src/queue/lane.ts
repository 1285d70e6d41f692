import { InvalidOptionError } from "../core/errors.ts";

/**
 * For so long BullMQ holds a job as delayed that is on its way to its lane;
 * in the lane, it is parked for a day. Should anything be lost on the way, the
 * job comes due by itself, and joins its lane then.
 */
export const PARK_MS = 10_000;

/** How much of a shared rate each key gets beside the others: 1 unless said otherwise. */
export type Weights = Readonly<Record<string, number>> | ((key: string) => number);

const [LEAST_WEIGHT, MOST_WEIGHT] = [0.001, 1_000];

/** Reads the weight of a key's lane; undefined if it is 1. */
export function createWeights(
  queue: string,
  weights: Weights = {},
): (key: string | undefined) => number | undefined {
  return (key) => {
    if (key === undefined) return undefined;
    const isTable = typeof weights === "object";
    const own = isTable && Object.hasOwn(weights, key) ? weights[key] : undefined;
    const weight = isTable ? (own ?? 1) : weights(key);
    if (typeof weight === "number" && weight >= LEAST_WEIGHT && weight <= MOST_WEIGHT) {
      return weight === 1 ? undefined : weight;
    }
    throw new InvalidOptionError({
      where: `queue("${queue}")`,
      option: "weights",
      value: weight,
      remedy: `give each key a number from ${LEAST_WEIGHT} to ${MOST_WEIGHT}`,
    });
  };
}

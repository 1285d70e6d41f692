import { describeValue, reasonOf } from "../../core/describe.ts";
import { InvalidOptionError } from "../../core/errors.ts";

/** How much of a shared rate each key gets beside the others: 1 unless said otherwise. */
export type Weights = Readonly<Record<string, number>> | OfKey;

type OfKey = (key: string) => number;

const [LEAST_WEIGHT, MOST_WEIGHT] = [0.001, 1_000];

/**
 * Reads the weight of a key's lane; undefined if it is 1.
 *
 * @throws {@link InvalidOptionError} when the table, or then the function, gives a key none.
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
  const tell = (key: string): number =>
    typeof weights === "function"
      ? read(call(weights, key))
      : read((Object.hasOwn(weights, key) ? weights[key] : undefined) ?? 1);
  return (key) => {
    const weight = key === undefined ? 1 : tell(key);
    return weight === 1 ? undefined : weight;
  };
}

/** The same for a worker: it has its jobs already, and one whose weight cannot be told now counts as 1. */
export function tolerant(
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

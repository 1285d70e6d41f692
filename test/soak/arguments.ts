import { parseArgs } from "node:util";
import { FAULT_KINDS, type FaultName } from "./plan/fault-kinds.ts";
import { readNumber } from "../support/children/read-number.ts";

export interface SoakArguments {
  readonly minutes: number;
  readonly seed: number;
  /** Whether to only print the plan. */
  readonly isPlanOnly: boolean;
  /** The kinds of faults that strike; all if undefined. */
  readonly only: readonly FaultName[] | undefined;
  /** A commit whose build runs beside this one. */
  readonly beside: string | undefined;
}

const USAGE =
  "npm run soak -- [--minutes 10] [--seed N] [--plan] [--only 'jobs cleaned,READONLY'] [--beside COMMIT]";
const MOST_MINUTES = 1_440;
const MOST_SEED = 2 ** 31 - 1;

/**
 * Reads the command line; picks a random seed if there is none.
 *
 * @throws Error when a flag is unknown or its value can never work.
 */
export function readArguments(
  given: readonly string[],
  drawSeed = () => Math.floor(Math.random() * MOST_SEED),
): SoakArguments {
  const { values } = parseArgs({
    args: [...given],
    options: {
      minutes: { type: "string", default: "10" },
      seed: { type: "string" },
      plan: { type: "boolean", default: false },
      only: { type: "string" },
      beside: { type: "string" },
    },
  });
  const { minutes, seed, plan, only, beside } = values;
  return {
    minutes: readNumber("minutes", minutes, { from: 1, to: MOST_MINUTES, usage: USAGE }),
    seed:
      seed === undefined
        ? drawSeed()
        : readNumber("seed", seed, { from: 0, to: MOST_SEED, usage: USAGE }),
    isPlanOnly: plan,
    only: only?.split(",").map(readName),
    beside,
  };
}

function readName(name: string): FaultName {
  if (Object.hasOwn(FAULT_KINDS, name)) return name as FaultName;
  const known = Object.keys(FAULT_KINDS).join(", ");
  throw new Error(`there is no fault "${name}"; these are known: ${known}`);
}

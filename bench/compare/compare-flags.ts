import { parseArgs } from "node:util";
import { pick } from "../flags.ts";

export const SCENARIOS = [
  "plain",
  "slow",
  "keyed",
  "fair",
  "many-fair",
  "pool",
  "budget",
  "few-keys",
  "many-keys",
  "many-replicas",
  "many-callers",
  "llm",
  "llm-fast",
  "llm-unlimited",
  "levels",
  "try",
  "try-keys",
  "try-scopes",
  "jobs",
  "keyed-jobs",
  "webhooks",
  "http-try",
  "forward",
  "import",
  "size",
] as const;
export type ScenarioName = (typeof SCENARIOS)[number];

export interface CompareFlags {
  /** The revision that is the base of the ratios. */
  readonly against: string;
  readonly only: readonly ScenarioName[];
  readonly rounds: number;
  /** The measured seconds of one build in one round, after the start-up. */
  readonly seconds: number;
}

/** True if the command line asks for a comparison of two builds. */
export function isComparison(args: readonly string[]): boolean {
  return args.some((arg) => arg === "--against" || arg.startsWith("--against="));
}

/**
 * Reads the command line of a comparison.
 *
 * @throws TypeError when a flag or a value is unknown.
 */
export function readCompareFlags(args: readonly string[]): CompareFlags {
  const { values } = parseArgs({
    args: [...args],
    options: {
      against: { type: "string", default: "" },
      only: { type: "string" },
      rounds: { type: "string", default: "3" },
      seconds: { type: "string", default: "10" },
    },
  });
  if (values.against === "") {
    throw new TypeError("--against: the revision is empty; pass a branch, a tag or a commit");
  }
  return {
    against: values.against,
    only: pick("--only", SCENARIOS, values.only),
    rounds: readCount("--rounds", values.rounds),
    seconds: readCount("--seconds", values.seconds),
  };
}

function readCount(flag: string, given: string): number {
  const count = Number(given);
  if (Number.isInteger(count) && count > 0) return count;
  throw new TypeError(`${flag}: "${given}" is not a whole number above 0; pass one such as 3`);
}

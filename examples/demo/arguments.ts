import { parseArgs } from "node:util";

/** The demo's flags. */
export interface DemoArguments {
  /** The cap of the downstream, in calls a second. */
  readonly rate: number;
  readonly jobs: number;
  readonly workers: number;
  /** The longest time to watch. Jobs that still wait then are reported as waiting. */
  readonly seconds: number;
  /** True if the demo serves the board for its Redis, also after the run. */
  readonly board: boolean;
}

type NumberFlag = Exclude<keyof DemoArguments, "board">;

/** Thrown when a flag is unknown or its value can never work. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

interface Flag {
  readonly preset: number;
  readonly most: number;
  readonly meaning: string;
}

const FLAGS: Readonly<Record<NumberFlag, Flag>> = {
  rate: { preset: 100, most: 10_000, meaning: "the cap, in calls a second" },
  jobs: { preset: 2_000, most: 100_000, meaning: "webhooks to send" },
  workers: { preset: 4, most: 32, meaning: "worker processes" },
  seconds: { preset: 25, most: 3_600, meaning: "how long to watch at most" },
};

export const USAGE: string = [
  "npm run demo -- [flags]",
  ...Object.entries(FLAGS).map(
    ([name, { preset, meaning }]) => `  --${name.padEnd(9)}${meaning} (${preset})`,
  ),
  "  --board    serves the board, until it is stopped",
].join("\n");

/**
 * Reads the flags; returns undefined when the user asks for help instead.
 *
 * @throws {@link UsageError} when a flag is unknown or its value can never work.
 */
export function readArguments(given: readonly string[]): DemoArguments | undefined {
  const values = parse(given);
  if (values["help"] === true) return undefined;
  const read = (name: NumberFlag): number => readWholeNumber(name, values[name]);
  return {
    rate: read("rate"),
    jobs: read("jobs"),
    workers: read("workers"),
    seconds: read("seconds"),
    board: values["board"] === true,
  };
}

function parse(given: readonly string[]): Readonly<Record<string, string | boolean | undefined>> {
  const options = {
    rate: { type: "string" },
    jobs: { type: "string" },
    workers: { type: "string" },
    seconds: { type: "string" },
    board: { type: "boolean" },
    help: { type: "boolean", short: "h" },
  } as const;
  try {
    return parseArgs({ args: [...given], options }).values;
  } catch (error) {
    const [problem = ""] = (error as Error).message.split(". ");
    const flags = Object.keys(FLAGS)
      .map((name) => `--${name}`)
      .join(", ");
    throw new UsageError(`${problem}; the flags are ${flags}, each with a number, and --board.`);
  }
}

function readWholeNumber(name: NumberFlag, value: string | boolean | undefined): number {
  const { preset, most } = FLAGS[name];
  if (value === undefined) return preset;
  const number = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : 0;
  if (number >= 1 && number <= most) return number;
  throw new UsageError(
    `--${name} is ${JSON.stringify(value)}; give a whole number from 1 to ${most}.`,
  );
}

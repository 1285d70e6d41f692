import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { stopSignals } from "../../examples/shared/stop-signals.ts";
import { readNumber } from "../support/children/read-number.ts";
import type { Round } from "./read-round.ts";
import { replaceFigures, replaceRows } from "./replace-figures.ts";
import { runRound } from "./run-round.ts";
import { summarize } from "./summarize.ts";

const PAGE = fileURLToPath(new URL("../../docs/reference/faults.md", import.meta.url));
const FORMATTER = fileURLToPath(new URL("../../node_modules/.bin/oxfmt", import.meta.url));
const USAGE = "npm run faults -- [--rounds 10] [--at-once 1] [words of the files' paths]";
const BOUNDS = { from: 1, to: 1_000, usage: USAGE };

interface Wanted {
  readonly rounds: number;
  /** How many rounds run at once; more than one keep the machine busy and take less time in all. */
  readonly atOnce: number;
  /** Words in the paths of the files to run; without any all are run. */
  readonly words: readonly string[];
}

/** Runs the fault suite repeatedly until a round fails; after each good round, writes the figures so far to the page. */
async function run({ rounds, atOnce, words }: Wanted, stop: AbortSignal): Promise<boolean> {
  const done: Round[] = [];
  let begun = 0;

  async function runSome(): Promise<void> {
    while (begun < rounds && areGood(done) && !stop.aborted) {
      begun += 1;
      const round = await runRound(words, stop);
      done.push(round);
      const ended = `${round.passed} passed, ${round.failed.length} failed`;
      const lines = [`round ${done.length} of ${rounds}: ${ended}`, ...round.failed];
      process.stdout.write(`${lines.join("\n\n  failed: ")}\n`);
      if (areGood(done)) await writeFigures(done, { atOnce, words });
    }
  }

  await Promise.all(Array.from({ length: atOnce }, runSome));
  return done.length === rounds && areGood(done);
}

/** Whether no round has failed or left out tests that others had. */
function areGood(rounds: readonly Round[]): boolean {
  const [first] = rounds;
  return rounds.every(({ passed, failed }) => failed.length === 0 && passed === first!.passed);
}

async function writeFigures(
  rounds: readonly Round[],
  { atOnce, words }: Pick<Wanted, "atOnce" | "words">,
): Promise<void> {
  const machine = `Node ${process.versions.node}, ${availableParallelism()} cores`;
  const run = `${rounds.length} rounds in a row without a failure, ${atOnce} at once`;
  const figures = `${run}, ${rounds[0]!.passed} tests each; ${machine}.`;
  const table = summarize(rounds.map(({ reports }) => reports));
  const page = await readFile(PAGE, "utf8");
  const isAll = words.length === 0;
  await writeFile(
    PAGE,
    isAll ? replaceFigures(page, `${figures}\n\n${table}`) : replaceRows(page, table),
  );
  await promisify(execFile)(FORMATTER, [PAGE]);
}

/** @throws Error when a flag is unknown or its value can never work. */
function readArguments(): Wanted {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      rounds: { type: "string", default: "10" },
      "at-once": { type: "string", default: "1" },
    },
  });
  return {
    rounds: readNumber("rounds", values.rounds, BOUNDS),
    atOnce: readNumber("at-once", values["at-once"], BOUNDS),
    words: positionals,
  };
}

try {
  if (!(await run(readArguments(), stopSignals()))) process.exitCode ??= 1;
} catch (error) {
  process.stderr.write(`faults: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode ??= 1;
}
// The signal handlers would keep the process alive.
process.exit();

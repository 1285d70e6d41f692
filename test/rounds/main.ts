import { readFile, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { replaceFigures } from "./replace-figures.ts";
import { runRound, type Round } from "./run-round.ts";
import { summarize } from "./summarize.ts";

const PAGE = fileURLToPath(new URL("../../docs/reliability.md", import.meta.url));
const MOST_ROUNDS = 1_000;
const USAGE = "npm run faults -- [--rounds 10]";

/** Runs the fault suite again and again, until a round fails; the page has the figures of all if none did. */
async function run(rounds: number): Promise<boolean> {
  const done: Round[] = [];
  while (done.length < rounds) {
    const round = await runRound();
    done.push(round);
    const ended = `round ${done.length} of ${rounds}: ${round.passed} passed, ${round.failed.length} failed`;
    process.stdout.write(`\n${[ended, ...round.failed].join("\n  failed: ")}\n\n`);
    if (round.failed.length > 0) return false;
  }
  const machine = `Node ${process.versions.node}, ${availableParallelism()} cores`;
  const figures = `${rounds} rounds in a row without a failure, ${done[0]!.passed} tests each; ${machine}.`;
  const page = await readFile(PAGE, "utf8");
  const table = summarize(done.map(({ reports }) => reports));
  await writeFile(PAGE, replaceFigures(page, `${figures}\n\n${table}`));
  return true;
}

const { values } = parseArgs({ options: { rounds: { type: "string", default: "10" } } });
const rounds = Number(values.rounds);
if (!Number.isInteger(rounds) || rounds < 1 || rounds > MOST_ROUNDS) {
  process.stderr.write(
    `--rounds is ${values.rounds}; give a whole number from 1 to ${MOST_ROUNDS}. ${USAGE}\n`,
  );
  process.exitCode = 1;
} else if (!(await run(rounds))) process.exitCode = 1;

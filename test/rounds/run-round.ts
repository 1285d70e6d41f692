import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { readRound, type Round } from "./read-round.ts";

const VITEST = fileURLToPath(new URL("../../node_modules/vitest/vitest.mjs", import.meta.url));

/** Runs the fault suite once, or those of its files whose paths have one of the words; keeps its output in a file if it failed. */
export async function runRound(words: readonly string[], stop: AbortSignal): Promise<Round> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-faults-"));
  const [report, log] = [join(folder, "report.json"), join(folder, "output.log")];
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  const round = spawn(
    process.execPath,
    [VITEST, "run", "--project", "faults", ...words, ...reporters],
    {
      stdio: ["ignore", "pipe", "pipe"],
      signal: stop,
    },
  );
  // The signal ends it as any other signal would.
  round.on("error", () => undefined);
  const output = createWriteStream(log);
  for (const stream of [round.stdout, round.stderr]) stream.pipe(output, { end: false });
  const [code] = (await once(round, "close")) as [number | null];
  output.end();

  const read = readRound(await readFile(report, "utf8").catch(() => undefined), code);
  if (read.failed.length === 0) await rm(folder, { recursive: true });
  else process.stdout.write(`Output of the round: ${log}\n`);
  return read;
}

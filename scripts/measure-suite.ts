import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative } from "node:path";
import process from "node:process";

/** Runs one project of the suite after the other, and prints how long each took, and its slowest files. */
const PROJECTS = ["unit", "types", "conformance", "integration", "memory", "faults"];
const SLOWEST = 10;

interface Report {
  readonly numTotalTests: number;
  readonly numFailedTests: number;
  readonly testResults: readonly {
    readonly name: string;
    readonly startTime: number;
    readonly endTime: number;
  }[];
}

const asked = process.argv.slice(2);
const folder = await mkdtemp(join(tmpdir(), "sluice-times-"));
const files: { readonly name: string; readonly seconds: number }[] = [];
const rows: string[] = [];
try {
  for (const project of asked.length > 0 ? asked : PROJECTS) {
    const path = join(folder, `${project}.json`);
    const startedMs = performance.now();
    await runProject(project, path);
    const seconds = (performance.now() - startedMs) / 1_000;
    const report = JSON.parse(await readFile(path, "utf8")) as Report;
    files.push(
      ...report.testResults.map(({ name, startTime, endTime }) => ({
        name: relative(process.cwd(), name),
        seconds: (endTime - startTime) / 1_000,
      })),
    );
    rows.push(`| \`${project}\` | ${report.numTotalTests} | ${seconds.toFixed(0)} |`);
    if (report.numFailedTests > 0) process.exitCode = 1;
  }
} finally {
  await rm(folder, { recursive: true });
}
console.log(`Node ${process.version}, ${availableParallelism()} cores\n`);
console.log(["| project | tests | seconds |", "| --- | --- | --- |", ...rows].join("\n"));
console.log(`\nThe slowest files:\n`);
const slowest = files.toSorted((a, b) => b.seconds - a.seconds).slice(0, SLOWEST);
for (const { name, seconds } of slowest) console.log(`${seconds.toFixed(1)} s  ${name}`);

async function runProject(project: string, outputFile: string): Promise<void> {
  const vitest = "node_modules/vitest/vitest.mjs";
  const reporters = ["--reporter=json", `--outputFile=${outputFile}`];
  const child = spawn(process.execPath, [vitest, "run", "--project", project, ...reporters], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  await once(child, "exit");
}

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Report } from "../support/report-figures.ts";

/** What a test of a file has seen of a fault. */
export interface FileReport extends Report {
  /** The file's name without its ending. */
  readonly file: string;
}

/** How the fault suite went once. */
export interface Round {
  readonly passed: number;
  /** The tests that failed and why, and the files that could not be run. */
  readonly failed: readonly string[];
  readonly reports: readonly FileReport[];
}

/** What we read of vitest's JSON report. */
interface VitestReport {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[];
      readonly meta: { readonly reports?: readonly Report[] };
    }[];
  }[];
}

/** Runs the fault suite once, and shows it as it goes if that is wanted. */
export async function runRound({ isShown }: { readonly isShown: boolean }): Promise<Round> {
  const folder = await mkdtemp(join(tmpdir(), "sluice-faults-"));
  try {
    const file = join(folder, "report.json");
    const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
    const arguments_ = ["vitest", "run", "--project", "faults", ...reporters];
    await once(spawn("npx", arguments_, { stdio: isShown ? "inherit" : "ignore" }), "exit");
    return roundOf(JSON.parse(await readFile(file, "utf8")) as VitestReport);
  } finally {
    await rm(folder, { recursive: true });
  }
}

function roundOf({ testResults }: VitestReport): Round {
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults);
  const failedFiles = testResults.filter(
    ({ status, assertionResults }) =>
      status === "failed" && assertionResults.every((test) => test.status === "passed"),
  );
  const failedTests = tests.filter(({ status }) => status !== "passed");
  return {
    passed: tests.length - failedTests.length,
    failed: [
      ...failedTests.map((test) => [test.fullName, ...test.failureMessages].join("\n")),
      ...failedFiles.map(({ name }) => name),
    ],
    reports: testResults.flatMap(({ name, assertionResults }) =>
      assertionResults.flatMap(({ meta }) =>
        (meta.reports ?? []).map((report) => ({ ...report, file: basename(name, ".test.ts") })),
      ),
    ),
  };
}

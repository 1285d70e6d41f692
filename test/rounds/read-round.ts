import { basename } from "node:path";
import type { Report } from "../support/docs/report-figures.ts";

/** What a test reported about a fault. */
export interface FileReport extends Report {
  /** The file's name without its extension. */
  readonly file: string;
}

/** The result of one round of the fault suite. */
export interface Round {
  readonly passed: number;
  /** What failed, and why: tests, files, or the whole run. */
  readonly failed: readonly string[];
  readonly reports: readonly FileReport[];
}

/** The parts of vitest's JSON report that are used. */
interface VitestReport {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[];
      readonly meta: { readonly reports?: readonly Report[] };
    }[];
  }[];
}

/** Reads vitest's report of a round, if there is one, and its exit code, which alone shows uncaught errors. */
export function readRound(report: string | undefined, code: number | null): Round {
  if (report === undefined)
    return { passed: 0, failed: [`no report: ${ended(code)}`], reports: [] };
  const { testResults } = JSON.parse(report) as VitestReport;
  const tests = testResults.flatMap(({ assertionResults }) => assertionResults);
  const failedTests = tests.filter(({ status }) => status !== "passed");
  const failedFiles = testResults.filter(
    (file) =>
      file.status === "failed" && !file.assertionResults.some(({ status }) => status === "failed"),
  );
  const passed = tests.length - failedTests.length;
  const failed = [
    ...failedTests.map((test) => [test.fullName, ...test.failureMessages].join("\n")),
    ...failedFiles.map(({ name, message }) => `${name}\n${message}`),
  ];
  if (failed.length === 0 && (code !== 0 || passed === 0)) failed.push(`the run: ${ended(code)}`);
  return { passed, failed, reports: testResults.flatMap(reportsOf) };
}

function reportsOf(file: VitestReport["testResults"][number]): FileReport[] {
  const name = basename(file.name, ".test.ts");
  return file.assertionResults
    .flatMap(({ meta }) => meta.reports ?? [])
    .map((report) => ({ ...report, file: name }));
}

function ended(code: number | null): string {
  return code === null ? "it was ended by a signal" : `it ended with exit code ${code}`;
}

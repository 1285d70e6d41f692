import { describe, expect, it } from "vitest";
import { readRound } from "../../rounds/read-round.ts";

const PASSED = { fullName: "holds", status: "passed", failureMessages: [], meta: {} };
const FAILED = { fullName: "breaks", status: "failed", failureMessages: ["why"], meta: {} };

const fileOf = (...assertionResults: object[]) => ({
  name: "/x/test/faults/connections/wire.test.ts",
  status: assertionResults.includes(FAILED) ? "failed" : "passed",
  message: "",
  assertionResults,
});
const reportOf = (...testResults: object[]): string => JSON.stringify({ testResults });

describe("a round of the fault suite", () => {
  it("passes when all tests have passed, and vitest says so", () => {
    const round = readRound(reportOf(fileOf(PASSED, PASSED)), 0);

    expect(round).toMatchObject({ passed: 2, failed: [] });
  });

  it("fails with its failed tests and their reasons", () => {
    const round = readRound(reportOf(fileOf(PASSED, FAILED)), 1);

    expect(round).toMatchObject({ passed: 1, failed: ["breaks\nwhy"] });
  });

  it("fails with a file that could not run", () => {
    const broken = { ...fileOf(), status: "failed", message: "no such module" };

    const { failed } = readRound(reportOf(fileOf(PASSED), broken), 1);

    expect(failed).toEqual(["/x/test/faults/connections/wire.test.ts\nno such module"]);
  });

  it("fails with a skipped test", () => {
    const skipped = { ...PASSED, status: "skipped" };

    expect(readRound(reportOf(fileOf(PASSED, skipped)), 0).failed).toEqual(["holds"]);
  });

  it.each([
    [
      "an error that nobody caught",
      reportOf(fileOf(PASSED)),
      1,
      "the run: it ended with exit code 1",
    ],
    ["no test at all", reportOf(), 0, "the run: it ended with exit code 0"],
    ["a signal", reportOf(fileOf(PASSED)), null, "the run: it was ended by a signal"],
    ["no report", undefined, 1, "no report: it ended with exit code 1"],
  ])("fails with %s", (_what, report, code, reason) => {
    expect(readRound(report, code).failed).toEqual([reason]);
  });

  it("contains the reports of its tests, with their files", () => {
    const reports = [{ fault: "slow", figures: { extra: 0 } }];

    const round = readRound(reportOf(fileOf(PASSED, { ...PASSED, meta: { reports } })), 0);

    expect(round.reports).toEqual([{ file: "wire", fault: "slow", figures: { extra: 0 } }]);
  });
});

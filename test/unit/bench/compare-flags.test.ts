import { expect, test } from "vitest";
import { isComparison, readCompareFlags, SCENARIOS } from "../../../bench/compare/compare-flags.ts";

test("compares all scenarios in three rounds of ten seconds by default", () => {
  const flags = readCompareFlags(["--against", "main"]);

  expect(flags).toEqual({ against: "main", only: SCENARIOS, rounds: 3, seconds: 10 });
});

test("runs the named scenarios in the order of the table", () => {
  const { only } = readCompareFlags(["--against=main", "--only", "llm,plain"]);

  expect(only).toEqual(["plain", "llm"]);
});

test("reads how many rounds and seconds to run", () => {
  const args = ["--against", "main", "--rounds", "1", "--seconds", "5"];

  expect(readCompareFlags(args)).toMatchObject({ rounds: 1, seconds: 5 });
});

test.each([
  [["--against", "main"], true],
  [["--only", "plain", "--against=main"], true],
  [["--quick"], false],
  [[], false],
])("distinguishes a comparison from a run of the promises: %j", (args, isOne) => {
  expect(isComparison(args)).toBe(isOne);
});

test.each([
  [["--only", "plain,fast"], '--only: unknown "fast"; there is plain, slow'],
  [["--rounds", "0"], '--rounds: "0" is not a whole number above 0'],
  [["--rounds", "2.5"], '--rounds: "2.5" is not a whole number above 0'],
  [["--seconds", "ten"], '--seconds: "ten" is not a whole number above 0'],
  [["--seconds="], '--seconds: "" is not a whole number above 0'],
  [["--quick"], "Unknown option '--quick'"],
])("refuses %j with a message that names the flag and the value", (args, message) => {
  expect(() => readCompareFlags(["--against", "main", ...args])).toThrow(message);
});

test("refuses an empty revision", () => {
  expect(() => readCompareFlags(["--against="])).toThrow("--against: the revision is empty");
});

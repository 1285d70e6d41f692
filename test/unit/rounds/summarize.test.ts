import { describe, expect, it } from "vitest";
import { summarize } from "../../rounds/summarize.ts";

const report = (file: string, fault: string, figures: Record<string, number>) => ({
  file,
  fault,
  figures,
});

describe("the table of several rounds", () => {
  it("has the range of each figure, or one number if they are equal", () => {
    const table = summarize([
      [report("wire", "slow", { recoveryMs: 12.6, extra: 0, "calls refused": 3 })],
      [report("wire", "slow", { recoveryMs: 200.2, extra: 0, "calls refused": 5 })],
    ]);

    expect(table.split("\n").at(-1)).toBe(
      "| slow | 13 to 200 | 0 | – | – | – | calls refused: 3 to 5 | `wire` |",
    );
  });

  it("has a line for each fault, sorted by test and then as reported", () => {
    const lines = summarize([
      [report("b", "first", {}), report("b", "second", {}), report("a", "third", {})],
    ]).split("\n");

    expect(lines.slice(2).map((line) => line.split(" | ")[0])).toEqual([
      "| third",
      "| first",
      "| second",
    ]);
  });

  it("keeps two decimals of numbers below ten", () => {
    const table = summarize([[report("a", "f", { used: 0.98765, wasted: 7.5 })]]);

    expect(table).toContain("| 7.5 | – | – | used: 0.99 |");
  });

  it("has the range of the rounds that reported a figure", () => {
    const table = summarize([[report("a", "f", { lost: 1 })], [report("a", "f", {})]]);

    expect(table).toContain("| – | – | – | 1 | – | – |");
  });
});

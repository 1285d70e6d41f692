import { expect, it } from "vitest";
import type { Report } from "../../../src/cli/conform/conform.ts";
import type { Figure } from "../../../src/cli/conform/figure.ts";
import { formatHtml } from "../../../src/cli/conform/html.ts";
import { formatMarkdown, formatReport } from "../../../src/cli/conform/report.ts";

const share: Figure = { figure: "share", bound: { atLeast: 0.95 }, value: 0.98, digits: 2 };
const recovery: Figure = { figure: "recovery", bound: { atMost: 5 }, value: undefined };

const report: Report = {
  at: "2026-11-30T12:00:00.000Z",
  isQuick: false,
  node: "v20.20.2",
  redis: "Redis 8.0.0",
  cores: 2,
  limiters: [
    { name: "sluice", title: "Sluice", version: "1.0.0" },
    { name: "bottleneck", title: "Bottleneck", version: "2.19.5" },
  ],
  scenarios: [
    { name: "crash", title: "A <crash>", about: "One dies." },
    { name: "restart", title: "A restart", about: "Redis dies." },
  ],
  outcomes: [
    { limiter: "sluice", scenario: "crash", result: "kept", figures: [share] },
    {
      limiter: "bottleneck",
      scenario: "crash",
      result: "missed",
      figures: [{ ...share, value: 0.4 }],
      timeline: { partMs: 50, accepted: [2, 0], refused: [0, 1] },
    },
    {
      limiter: "sluice",
      scenario: "restart",
      result: "not run",
      reason: "it kills Redis",
      figures: [],
    },
    { limiter: "bottleneck", scenario: "restart", result: "missed", figures: [recovery] },
  ],
};

it("prints a table with a column for each limiter, and marks what is missed", () => {
  const lines = formatReport(report).split("\n");

  expect(lines).toContain("SCENARIO        FIGURE    PROMISE  SLUICE   BOTTLENECK");
  expect(lines).toContain("A <crash>       share     ≥ 0.95   0.98     0.40 MISSED");
  expect(lines).toContain("A restart       recovery  ≤ 5      not run  never MISSED");
  expect(lines).toContain("scenarios kept                     1 of 1   0 of 2");
  expect(lines).toContain("Not run: A restart, because it kills Redis.");
});

it("prints the same table as Markdown", () => {
  const text = formatMarkdown(report);

  expect(text).toContain("| A restart | recovery | ≤ 5 | not run | **never** |");
  expect(text).toContain("| scenarios kept |  |  | 1 of 1 | 0 of 2 |");
});

it("writes a page that needs no other file, with a picture of each run", () => {
  const page = formatHtml(report);

  expect(page).toContain("<td>A &lt;crash&gt;</td>");
  expect(page.match(/<rect/g)).toHaveLength(2);
  expect(page).not.toMatch(/(?:src|href)=/);
});

it("mentions that the machine stood still only if Sluice missed a promise", () => {
  const stalled = report.outcomes.map((outcome) => ({ ...outcome, stoodStillMs: 200 }));
  const missed = stalled.map((outcome) =>
    outcome.limiter === "sluice" ? { ...outcome, result: "missed" as const } : outcome,
  );

  expect(formatReport({ ...report, outcomes: stalled })).not.toContain("stood still");
  expect(formatReport({ ...report, outcomes: missed })).toContain("stood still for up to 200 ms");
});

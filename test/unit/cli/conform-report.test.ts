import { expect, it } from "vitest";
import type { Report } from "../../../src/cli/conform/conform.ts";
import { formatValue, type Figure } from "../../../src/cli/conform/figure.ts";
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
  expect(lines).toContain("Not run: A restart (it kills Redis).");
});

it("shows a missing feature as such, and does not count the scenario", () => {
  const outcomes = report.outcomes.map((outcome) =>
    outcome.limiter === "bottleneck" && outcome.scenario === "crash"
      ? { ...outcome, result: "no such feature" as const, reason: "no pool", figures: [] }
      : outcome,
  );
  const lacking = { ...report, outcomes };

  const lines = formatReport(lacking).split("\n");

  expect(lines).toContain("A <crash>       share     ≥ 0.95   0.98     no such feature");
  expect(lines).toContain("scenarios kept                     1 of 1   0 of 1");
  expect(lines).toContain("Bottleneck has no pool: A <crash>.");
  expect(formatMarkdown(lacking)).toContain("| 0.98 | no such feature |");
  expect(formatHtml(lacking)).toContain('<td class="no-such-feature">no such feature</td>');
});

it("says for each limiter why it could not start", () => {
  const reason = "Bottleneck: A replica could not start: no memory";
  const outcomes = report.outcomes.map((outcome) =>
    outcome.limiter === "bottleneck"
      ? { ...outcome, result: "not run" as const, reason, figures: [] }
      : outcome,
  );

  const lines = formatReport({ ...report, outcomes }).split("\n");

  expect(lines).toContain(`Not run: A <crash> (${reason}).`);
  expect(lines).toContain(`Not run: A restart (${reason}).`);
});

it("holds the same rows in the table, in Markdown, on the page and in JSON", () => {
  const { outcomes } = JSON.parse(JSON.stringify(report)) as Report;
  const ofTable = formatReport(report)
    .split("\n")
    .slice(3, -3)
    .map((line) => line.replaceAll(" MISSED", "").split(/ {2,}/));
  const ofMarkdown = formatMarkdown(report)
    .split("\n")
    .slice(4, -3)
    .map((line) => line.replaceAll("**", "").slice(2, -2).split(" | "));
  const ofPage = [...formatHtml(report).matchAll(/<tr>(<td>.*?)<\/tr>/g)]
    .slice(0, -1)
    .map(([, cells]) => [...cells!.matchAll(/<td[^>]*>(.*?)<\/td>/g)].map(([, text]) => text));
  const ofJson = outcomes.flatMap(({ figures }) => figures.map(formatValue));

  expect(ofMarkdown).toEqual(ofTable);
  expect(ofPage).toEqual(
    ofTable.map((row) => row.map((text) => text.replace("<", "&lt;").replace(">", "&gt;"))),
  );
  expect(ofTable.flatMap((row) => row.slice(3)).toSorted()).toEqual(
    [...ofJson, "not run"].toSorted(),
  );
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

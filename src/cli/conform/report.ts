import { table } from "../io.ts";
import type { LimiterInfo, Report } from "./conform.ts";
import { formatBound, formatValue, isKept } from "./figure.ts";
import type { LimiterName } from "./limiters/limiters.ts";
import type { Outcome } from "./stage.ts";

/** One figure of a scenario, with the value of each limiter. */
interface ReportRow {
  readonly title: string;
  readonly figure: string;
  readonly promise: string;
  readonly cells: readonly Cell[];
}

interface Cell {
  readonly text: string;
  readonly state: Outcome["result"];
}

export function outcomeOf(
  { outcomes }: Report,
  scenario: string,
  limiter: LimiterName,
): Outcome | undefined {
  return outcomes.find((each) => each.scenario === scenario && each.limiter === limiter);
}

export function rowsOf(report: Report): readonly ReportRow[] {
  return report.scenarios.flatMap(({ name, title }) => {
    const outcomes = report.limiters.map((limiter) => outcomeOf(report, name, limiter.name)!);
    const figures = outcomes.find(hasRun)?.figures ?? [];
    if (figures.length === 0) {
      const cells = outcomes.map((outcome) => cellOf(outcome, 0));
      return [{ title, figure: "", promise: "", cells }];
    }
    return figures.map(({ figure, bound }, at) => ({
      title: at === 0 ? title : "",
      figure,
      promise: formatBound(bound),
      cells: outcomes.map((outcome) => cellOf(outcome, at)),
    }));
  });
}

function hasRun({ result }: Outcome): boolean {
  return result === "kept" || result === "missed";
}

function cellOf({ result, figures }: Outcome, at: number): Cell {
  const figure = figures[at];
  if (figure === undefined) return { text: result, state: result };
  return { text: formatValue(figure), state: isKept(figure) ? "kept" : "missed" };
}

/** Returns how many scenarios a limiter kept, of those that ran: `"7 of 8"`. */
export function scoreOf(report: Report, { name }: LimiterInfo): string {
  const ran = report.outcomes.filter((each) => each.limiter === name && hasRun(each));
  return `${ran.filter(({ result }) => result === "kept").length} of ${ran.length}`;
}

/** Formats a report for a terminal. A missed promise has a mark. */
export function formatReport(report: Report): string {
  const [heads, ...rows] = linesOf(report, (text) => `${text} MISSED`);
  return [describeRun(report), "", table(heads!, rows), ...remarksOn(report)].join("\n");
}

/** Formats a report as a Markdown table, for a page or an issue. */
export function formatMarkdown(report: Report): string {
  const [heads, ...rows] = linesOf(report, (text) => `**${text}**`);
  const rule = heads!.map((_head, at) => (at < 3 ? "---" : "--:"));
  const lines = [heads!, rule, ...rows].map((cells) => `| ${cells.join(" | ")} |`);
  const remarks = remarksOn(report).map((remark) => (remark === "" ? "" : `- ${remark}`));
  const about = `${describeRun(report)} Bold values miss the promise.`;
  return [about, "", ...lines, ...remarks].join("\n");
}

/** Returns the cells of the table, with its head and the number of scenarios that each limiter kept. */
function linesOf(report: Report, markMissed: (text: string) => string): readonly string[][] {
  const { limiters } = report;
  return [
    ["scenario", "figure", "promise", ...limiters.map(({ title }) => title)],
    ...rowsOf(report).map(({ title, figure, promise, cells }) => [
      title,
      figure,
      promise,
      ...cells.map(({ text, state }) => (state === "missed" ? markMissed(text) : text)),
    ]),
    ["scenarios kept", "", "", ...limiters.map((limiter) => scoreOf(report, limiter))],
  ];
}

export function describeRun({ at, isQuick, node, redis, cores, limiters }: Report): string {
  const versions = limiters.map(({ title, version }) => `${title} ${version}`).join(", ");
  const effort = isQuick ? "Quick run" : "Run";
  return `${effort} of ${at.slice(0, 10)} on ${cores} cores, which ${redis} and all replicas share. Node ${node}, ${versions}.`;
}

/** A standstill of this length may turn even calls into a burst. */
const LONG_STANDSTILL_MS = 30;

function remarksOn({ outcomes, scenarios, limiters }: Report): readonly string[] {
  const titleOf = (of: string): string => scenarios.find(({ name }) => name === of)!.title;
  const notRun = new Set(
    outcomes
      .filter(({ result }) => result === "not run")
      .map(({ scenario, reason }) => `Not run: ${titleOf(scenario)} (${reason}).`),
  );
  const missing = limiters.flatMap(({ name, title }) =>
    outcomes
      .filter(({ limiter, result }) => limiter === name && result === "no such feature")
      .map(({ scenario, reason }) => `${title} has ${reason}: ${titleOf(scenario)}.`),
  );
  const missed = outcomes.filter(
    ({ limiter, result }) => limiter === "sluice" && result === "missed",
  );
  const longestMs = Math.max(0, ...missed.map(({ stoodStillMs = 0 }) => stoodStillMs));
  const busy =
    longestMs < LONG_STANDSTILL_MS
      ? []
      : [
          `This machine stood still for up to ${longestMs} ms, which can make calls late. Run it again on a quieter machine.`,
        ];
  const remarks = [...notRun, ...missing, ...busy];
  return remarks.length === 0 ? [] : ["", ...remarks];
}

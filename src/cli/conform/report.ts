import { table } from "../io.ts";
import type { LimiterInfo, Report } from "./conform.ts";
import { formatBound, formatValue, isKept, type Figure } from "./figure.ts";
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
    const figures = outcomes.find(({ result }) => result !== "not run")?.figures ?? [];
    if (figures.length === 0) {
      return [{ title, figure: "", promise: "", cells: outcomes.map(() => NOT_RUN) }];
    }
    return figures.map(({ figure, bound }, at) => ({
      title: at === 0 ? title : "",
      figure,
      promise: formatBound(bound),
      cells: outcomes.map((outcome) => cellOf(outcome.figures[at])),
    }));
  });
}

const NOT_RUN: Cell = { text: "not run", state: "not run" };

function cellOf(figure: Figure | undefined): Cell {
  if (figure === undefined) return NOT_RUN;
  return { text: formatValue(figure), state: isKept(figure) ? "kept" : "missed" };
}

/** Returns how many scenarios a limiter kept, of those that ran: `"7 of 8"`. */
export function scoreOf(report: Report, { name }: LimiterInfo): string {
  const ran = report.outcomes.filter((each) => each.limiter === name && each.result !== "not run");
  return `${ran.filter(({ result }) => result === "kept").length} of ${ran.length}`;
}

/** Formats a report for a terminal. A missed promise has a mark. */
export function formatReport(report: Report): string {
  const { limiters } = report;
  const heads = ["scenario", "figure", "promise", ...limiters.map(({ title }) => title)];
  const rows = rowsOf(report).map(({ title, figure, promise, cells }) => [
    title,
    figure,
    promise,
    ...cells.map(({ text, state }) => (state === "missed" ? `${text} MISSED` : text)),
  ]);
  const kept = ["scenarios kept", "", "", ...limiters.map((limiter) => scoreOf(report, limiter))];
  const lines = [describeRun(report), "", table(heads, [...rows, kept]), ...remarksOn(report)];
  return lines.join("\n");
}

/** Formats a report as a Markdown table, for a page or an issue. */
export function formatMarkdown(report: Report): string {
  const { limiters } = report;
  const heads = ["scenario", "figure", "promise", ...limiters.map(({ title }) => title)];
  const rows = rowsOf(report).map(({ title, figure, promise, cells }) => [
    title,
    figure,
    promise,
    ...cells.map(({ text, state }) => (state === "missed" ? `**${text}**` : text)),
  ]);
  const kept = ["scenarios kept", "", "", ...limiters.map((limiter) => scoreOf(report, limiter))];
  const rule = heads.map((_head, at) => (at < 3 ? "---" : "--:"));
  const lines = [heads, rule, ...rows, kept].map((cells) => `| ${cells.join(" | ")} |`);
  return [`${describeRun(report)} Bold values miss the promise.`, "", ...lines].join("\n");
}

export function describeRun({ at, isQuick, node, redis, cores, limiters }: Report): string {
  const versions = limiters.map(({ title, version }) => `${title} ${version}`).join(", ");
  const effort = isQuick ? "Quick run" : "Run";
  return `${effort} of ${at.slice(0, 10)} on ${cores} cores, which ${redis} and all replicas share. Node ${node}, ${versions}.`;
}

/** A standstill of this length may turn even calls into a burst. */
const LONG_STANDSTILL_MS = 30;

function remarksOn({ outcomes, scenarios }: Report): readonly string[] {
  const reasons = new Map(
    outcomes.flatMap(({ scenario, reason }) => (reason === undefined ? [] : [[scenario, reason]])),
  );
  const notRun = [...reasons].map(([scenario, reason]) => {
    const { title } = scenarios.find(({ name }) => name === scenario)!;
    return `Not run: ${title}, because ${reason}.`;
  });
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
  const remarks = [...notRun, ...busy];
  return remarks.length === 0 ? [] : ["", ...remarks];
}

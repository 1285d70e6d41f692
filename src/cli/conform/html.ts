import type { Report } from "./conform.ts";
import type { Timeline } from "./stage.ts";
import { describeRun, outcomeOf, rowsOf, scoreOf } from "./report.ts";

const STYLE = `
:root { color-scheme: light dark; --line: #8884; --kept: #1a7f37; --missed: #cf222e; --bar: #0969da; }
@media (prefers-color-scheme: dark) { :root { --kept: #3fb950; --missed: #f85149; --bar: #58a6ff; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; }
th:nth-child(n+3), td:nth-child(n+3) { text-align: right; white-space: nowrap; }
.kept { color: var(--kept); } .missed { color: var(--missed); font-weight: 600; }
.missed::after { content: " missed"; font-weight: 400; }
figure { margin: .5rem 0 1rem; } figcaption { font-size: .875rem; }
svg { display: block; width: 100%; height: 72px; background: #8881; }
.accepted { fill: var(--bar); } .refused { fill: var(--missed); }
`;

/** Returns a page that needs no other file and no network. */
export function formatHtml(report: Report): string {
  const rows = rowsOf(report);
  const heads = ["Scenario", "Figure", "Promise", ...report.limiters.map(({ title }) => title)];
  const body = rows.map(({ title, figure, promise, cells }) => {
    const values = cells.map(
      ({ text, state }) => `<td class="${state.replaceAll(" ", "-")}">${escape(text)}</td>`,
    );
    return `<tr>${[title, figure, promise].map((text) => `<td>${escape(text)}</td>`).join("")}${values.join("")}</tr>`;
  });
  const scores = report.limiters.map((limiter) => `<td>${scoreOf(report, limiter)}</td>`);
  return [
    "<!doctype html>",
    '<html lang="en">',
    '<meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">',
    "<title>Conformance of rate limiters</title>",
    `<style>${STYLE}</style>`,
    "<h1>Conformance of rate limiters</h1>",
    `<p>${escape(describeRun(report))}</p>`,
    '<div class="wide"><table>',
    `<thead><tr>${heads.map((head) => `<th>${escape(head)}</th>`).join("")}</tr></thead>`,
    "<tbody>",
    ...body,
    `<tr><td>Scenarios kept</td>${EMPTY}${EMPTY}${scores.join("")}</tr>`,
    "</tbody></table></div>",
    ...report.scenarios.map((scenario) => section(report, scenario)),
    "</html>",
    "",
  ].join("\n");
}

const EMPTY = "<td></td>";

function section(report: Report, scenario: Report["scenarios"][number]): string {
  const { name, title, about, published } = scenario;
  const source = published === undefined ? "" : ` Published in ${published}.`;
  const pictures = report.limiters.map((limiter) => {
    const { result, reason, timeline } = outcomeOf(report, name, limiter.name)!;
    const why = reason === undefined ? "" : `: ${reason}`;
    const state = `<span class="${result === "kept" ? "kept" : ""}">${result}</span>`;
    const picture = timeline === undefined ? "" : draw(timeline, `${limiter.title}: ${title}`);
    return `<figure><figcaption>${escape(limiter.title)}, ${state}${escape(why)}</figcaption>${picture}</figure>`;
  });
  return `<section><h2>${escape(title)}</h2>
<p>${escape(`${about}${source}`)}</p>
${pictures.join("\n")}</section>`;
}

const HEIGHT = 72;
const BAR = 10;

/** Draws the calls over time, with refused calls on top of accepted ones. */
function draw({ partMs, accepted, refused }: Timeline, label: string): string {
  const totals = accepted.map((count, at) => count + refused[at]!);
  const most = Math.max(1, ...totals);
  const bars = accepted.flatMap((count, at) => [
    bar("accepted", at, 0, count / most),
    bar("refused", at, count / most, refused[at]! / most),
  ]);
  const seconds = ((accepted.length * partMs) / 1_000).toFixed(1);
  const text = `${label}. Calls in each ${partMs} ms of ${seconds} s; the highest bar is ${most} calls.`;
  return `<svg role="img" aria-label="${escape(text)}" viewBox="0 0 ${accepted.length * BAR} ${HEIGHT}" preserveAspectRatio="none"><title>${escape(text)}</title>${bars.join("")}</svg>`;
}

function bar(kind: "accepted" | "refused", at: number, below: number, part: number): string {
  if (part === 0) return "";
  const height = part * HEIGHT;
  const y = HEIGHT * (1 - below) - height;
  return `<rect class="${kind}" x="${at * BAR}" y="${y.toFixed(1)}" width="${BAR - 2}" height="${height.toFixed(1)}"/>`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
};

function escape(text: string): string {
  return text.replaceAll(/[&<>"]/g, (found) => ENTITIES[found]!);
}

import { COMPARED } from "./limiters/contenders.ts";

/** The limiters that can have a column. The last two appear in one table only. */
const COLUMNS = [...COMPARED, "groupmq", "gradient2"] as const;
type Column = (typeof COLUMNS)[number];

/** One figure, with a value for each limiter that has it. */
export interface Row {
  readonly figure: string;
  /** Sluice's promise, such as `">= 0.995"`; left out if nothing is promised. */
  readonly promise?: string | undefined;
  /** True if Sluice kept the promise; left out if nothing is promised or Sluice did not run. */
  readonly isKept?: boolean | undefined;
  readonly values: Partial<Readonly<Record<Column, string>>>;
}

export interface Table {
  readonly title: string;
  readonly rows: readonly Row[];
}

const TITLES: Readonly<Record<Column, string>> = {
  sluice: "Sluice",
  bottleneck: "Bottleneck",
  "rate-limiter-flexible": "rate-limiter-flexible",
  bullmq: "BullMQ",
  groupmq: "GroupMQ",
  gradient2: "Gradient2 in each process",
};

/** Formats a table as markdown with aligned columns, so that it reads well in a terminal too. */
export function formatTable({ title, rows }: Table): string {
  const shown = COLUMNS.filter((name) => rows.some(({ values }) => values[name] !== undefined));
  const lines = [
    ["figure", "promise", "kept", ...shown.map((name) => TITLES[name])],
    ...rows.map(({ figure, promise = "", isKept, values }) => [
      figure,
      promise,
      isKept === undefined ? "" : isKept ? "yes" : "missed",
      ...shown.map((name) => values[name] ?? "–"),
    ]),
  ];
  const widths = lines[0]!.map((_, column) =>
    Math.max(...lines.map((line) => line[column]!.length)),
  );
  const rule = widths.map((width, column) => (column < 3 ? "-".repeat(width) : rightRule(width)));
  const aligned = lines.map((line) =>
    line.map((cell, column) =>
      column < 3 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!),
    ),
  );
  const [head, ...body] = aligned.map(asLine);
  return [`### ${title}`, "", head, asLine(rule), ...body].join("\n");
}

/** Counts the promises that were missed. */
export function countMissed(tables: readonly Table[]): number {
  return tables.flatMap(({ rows }) => rows).filter(({ isKept }) => isKept === false).length;
}

function rightRule(width: number): string {
  return `${"-".repeat(Math.max(1, width - 1))}:`;
}

function asLine(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}
